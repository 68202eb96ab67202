#include "bench/options.h"

#include <charconv>

#include "asterism/core/error.h"

namespace asterism::bench {

Options::Options(const std::string& program, std::map<std::string, std::string> defaults, int argc, char** argv)
    : program_(program), values_(std::move(defaults)) {
  for (int i = 1; i < argc; i += 2) {
    const std::string word = argv[i], key = word.starts_with("--") ? word.substr(2) : "";
    if (!values_.contains(key)) {
      std::string known;
      for (const auto& [name, value] : values_) known += " --" + name;
      input_error(program_, ": unknown option ", word, "; there are", known);
    }
    if (i + 1 == argc) input_error(program_, ": ", word, " has no value");
    values_[key] = argv[i + 1];
  }
}

int64_t Options::number(const std::string& key) const {
  const std::string& value = text(key);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) {
    input_error(program_, ": --", key, " must be a whole number, got ", value);
  }
  return number;
}

size_t Options::choice(const std::string& key, const std::vector<std::string>& words) const {
  const std::string& value = text(key);
  std::string known;
  for (size_t i = 0; i < words.size(); ++i) {
    if (value == words[i]) return i;
    known += (i == 0 ? "" : ", ") + words[i];
  }
  input_error(program_, ": --", key, " must be one of ", known, ", got ", value);
}

}  // namespace asterism::bench
