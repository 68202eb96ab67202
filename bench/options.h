#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace asterism::bench {

/// The command line of a benchmark: pairs "--key value". InputError for a key without a default and for a value that is
/// missing or no number.
class Options {
 public:
  Options(const std::string& program, std::map<std::string, std::string> defaults, int argc, char** argv);

  const std::string& text(const std::string& key) const { return values_.at(key); }
  int64_t number(const std::string& key) const;
  /// Which of the words it is, by its place. InputError for any other.
  size_t choice(const std::string& key, const std::vector<std::string>& words) const;
  /// One of two words: whether it is `yes`.
  bool is(const std::string& key, const std::string& yes, const std::string& no) const {
    return choice(key, {yes, no}) == 0;
  }

 private:
  std::string program_;
  std::map<std::string, std::string> values_;
};

}  // namespace asterism::bench
