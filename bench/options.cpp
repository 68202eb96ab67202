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

bool Options::is(const std::string& key, const std::string& yes, const std::string& no) const {
  const std::string& value = text(key);
  if (value != yes && value != no) input_error(program_, ": --", key, " is ", yes, " or ", no, ", got ", value);
  return value == yes;
}

}  // namespace asterism::bench
