#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace asterism::cli {

/// One option or positional argument: what a command wants to know, without a word about how it is parsed.
struct Option {
  using Target = std::variant<std::string*, std::vector<std::string>*, bool*, int64_t*, uint64_t*, double*>;

  std::string name;  // "--config", or "RECIPE" for a positional argument
  Target target;     // set when the option is given; a bool* makes a flag without a value, a vector takes several
  std::string help;
  bool required = false;
  std::vector<std::string> choices{};           // the values it takes; any when empty
  std::optional<double> at_least{}, at_most{};  // of a number

  bool positional() const { return !name.starts_with("-"); }
};

/// A command: its own work, or a group of commands below it.
struct Command {
  std::string name;
  std::string summary;    // one line
  std::string example{};  // works in a fresh checkout after `make build`
  std::vector<Option> options{};
  std::function<int()> run{};       // the exit code
  std::vector<Command> children{};  // exclusive with `run`
};

}  // namespace asterism::cli
