#pragma once

#include <map>
#include <string>
#include <vector>

namespace asterism::checkpoint {

/// Findings about many tensors, reported together: the first ten of each kind and how many there are.
class ProblemList {
 public:
  /// `kind` is a heading such as "missing tensors"; headings appear in the order of their first finding.
  void add(const std::string& kind, const std::string& finding);
  bool empty() const { return kinds_.empty(); }
  size_t count(const std::string& kind) const;

  /// InputError with `origin`, all findings and `hint` when there are any.
  void throw_if_any(const std::string& origin, const std::string& hint) const;

 private:
  std::vector<std::string> kinds_;
  std::map<std::string, std::vector<std::string>> shown_;
  std::map<std::string, size_t> counts_;
};

}  // namespace asterism::checkpoint
