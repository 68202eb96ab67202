#include "asterism/cli/command_line.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <iostream>
#include <limits>
#include <new>
#include <optional>
#include <type_traits>
#include <variant>

#include "asterism/cli/cpu_choice.h"
#include "asterism/cli/numbers.h"
#include "asterism/cli/version.h"
#include "asterism/core/error.h"
#include "asterism/core/log.h"

namespace asterism::cli {

namespace {

constexpr const char* kProgram = "asterism";

std::string joined(const std::vector<std::string>& words) {
  std::string result;
  for (const std::string& word : words) result += (result.empty() ? "" : ", ") + word;
  return result;
}

[[noreturn]] void usage_error(const std::string& command, const std::string& message) {
  throw InputError(text(message, "; see ", command, " --help"));
}

// ---- names that do not exist: found before parsing, so that a typing error is not reported as a missing argument

const Command* find_command(const std::vector<Command>& commands, const std::string& name) {
  const auto found = std::ranges::find(commands, name, &Command::name);
  return found == commands.end() ? nullptr : &*found;
}

[[noreturn]] void unknown_command(const std::string& parent, const std::string& name,
                                  const std::vector<Command>& commands) {
  std::vector<std::string> known;
  for (const Command& command : commands) known.push_back(command.name);
  const std::string nearest = nearest_name(name, known);
  usage_error(parent, text("unknown command ", name, nearest.empty() ? "" : "; did you mean " + nearest + "?",
                           nearest.empty() ? "; " : " ", "Commands: ", joined(known)));
}

/// "asterism chat encode": the program and the command that the arguments begin with.
std::string title_of(const std::vector<std::string>& arguments, const std::vector<Command>& commands) {
  std::string title = kProgram;
  const std::vector<Command>* level = &commands;
  for (const std::string& argument : arguments) {
    const Command* command = find_command(*level, argument);
    if (command == nullptr) break;
    title += " " + command->name;
    level = &command->children;
  }
  return title;
}

void check_options(const std::string& title, const Command& command, const std::vector<std::string>& arguments) {
  std::vector<std::string> known = {"--help", "--quiet"};
  for (const Option& option : command.options) {
    if (!option.positional()) known.push_back(option.name);
  }
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    if (!argument.starts_with("--")) continue;
    const std::string name = argument.substr(0, argument.find('='));
    if (std::ranges::find(known, name) != known.end()) continue;
    const std::string nearest = nearest_name(name, known);
    usage_error(title, text("unknown option ", name, nearest.empty() ? "" : "; did you mean " + nearest + "?",
                            nearest.empty() ? "; " : " ", "Options: ", joined(known)));
  }
}

void check_names(const std::vector<std::string>& arguments, const std::vector<Command>& commands) {
  std::string title = kProgram;
  const std::vector<Command>* level = &commands;
  for (size_t at = 0;; ++at) {
    if (at == arguments.size()) {
      std::vector<std::string> known;
      for (const Command& command : *level) known.push_back(command.name);
      usage_error(title, text(title, ": which command? One of: ", joined(known)));
    }
    // Options in front of the command (--help, --version) are for the parser.
    if (arguments[at].starts_with("-")) return;
    const Command* command = find_command(*level, arguments[at]);
    if (command == nullptr) unknown_command(title, arguments[at], *level);
    title += " " + command->name;
    if (command->children.empty()) {
      return check_options(title, *command, {arguments.begin() + static_cast<int64_t>(at) + 1, arguments.end()});
    }
    level = &command->children;
  }
}

// ---- from the description of a command to the parser

/// The parser's own conversions take -1 for a seed, cut off what does not fit and read 010 as 8.
template <typename Number>
std::optional<Number> parse(const std::string& value) {
  if constexpr (std::is_same_v<Number, double>) {
    return parse_number(value);
  } else {
    return parse_whole<Number>(value);
  }
}

template <typename Number>
CLI::Option* add_number(CLI::App& app, const Option& option, Number* target) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double low = option.at_least.value_or(-kInfinity), high = option.at_most.value_or(kInfinity);
  const auto store = [name = option.name, target, low, high](const std::string& value) {
    const auto number = parse<Number>(value);
    if (number && static_cast<double>(*number) >= low && static_cast<double>(*number) <= high) {
      *target = *number;
      return;
    }
    std::string expected = std::is_same_v<Number, double> ? "a number" : "a whole number";
    if (std::is_same_v<Number, uint64_t>) expected += " from 0 to 2^64 - 1";
    if (low > -kInfinity) expected += text(high < kInfinity ? " from " : ", at least ", low);
    if (high < kInfinity) expected += text(" to ", high);
    throw CLI::ValidationError(name, text("expected ", expected, "; found ", value));
  };
  CLI::Option* added = app.add_option_function<std::string>(option.name, store, option.help);
  return added->type_name("NUMBER");
}

/// A list takes one value each time it is named: otherwise it would swallow positional arguments.
CLI::Option* add_list(CLI::App& app, const Option& option, std::vector<std::string>* target) {
  CLI::Option* added = app.add_option(option.name, *target, option.help);
  if (!option.positional()) added->expected(1)->take_all()->allow_extra_args(false);
  return added;
}

struct OptionAdder {
  CLI::App& app;
  const Option& option;

  CLI::Option* operator()(bool* target) const { return app.add_flag(option.name, *target, option.help); }
  CLI::Option* operator()(std::string* target) const { return app.add_option(option.name, *target, option.help); }
  CLI::Option* operator()(std::vector<std::string>* target) const { return add_list(app, option, target); }
  CLI::Option* operator()(int64_t* target) const { return add_number(app, option, target); }
  CLI::Option* operator()(uint64_t* target) const { return add_number(app, option, target); }
  CLI::Option* operator()(double* target) const { return add_number(app, option, target); }
};

void add_option(CLI::App& app, const Option& option) {
  CLI::Option* added = std::visit(OptionAdder{app, option}, option.target);
  if (option.required) added->required();
  if (!option.choices.empty()) added->check(CLI::IsMember(option.choices));
}

void add_command(CLI::App& parent, const Command& command, bool& quiet, const Command*& chosen) {
  CLI::App* app = parent.add_subcommand(command.name, command.summary);
  if (!command.example.empty()) app->footer("Example:\n  " + command.example);
  for (const Option& option : command.options) add_option(*app, option);
  for (const Command& child : command.children) add_command(*app, child, quiet, chosen);
  if (!command.children.empty()) {
    app->require_subcommand(1);
    return;
  }
  app->add_flag("--quiet", quiet, "No progress and no log lines but warnings");
  app->callback([&chosen, &command] { chosen = &command; });
}

int run_parsed(const std::vector<std::string>& arguments, const std::vector<Command>& commands) {
  check_names(arguments, commands);
  CLI::App app("Fine-tunes DeepSeek-V4-class Mixture-of-Experts models", kProgram);
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  bool quiet = false;
  const Command* chosen = nullptr;
  for (const Command& command : commands) add_command(app, command, quiet, chosen);
  try {
    // CLI11 takes the arguments from the back of the list.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& success) {
    return app.exit(success, std::cout, std::cerr);
  } catch (const CLI::ParseError& error) {
    usage_error(title_of(arguments, commands), error.what());
  }
  process_log().set_quiet(quiet);
  return chosen->run();
}

}  // namespace

Failure current_failure() {
  try {
    throw;
  } catch (const InputError& error) {
    return {kWrongInput, user_message(error)};
  } catch (const VerificationError& error) {
    return {kNotEqual, user_message(error)};
  } catch (const std::bad_alloc&) {
    return {kFailed,
            "out of memory; use a smaller model, micro_batch or sequence_length, or a machine with more memory"};
  } catch (const std::exception& error) {
    return {kFailed, user_message(error)};
  } catch (...) {
    return {kFailed, "an error of unknown kind"};
  }
}

int run_command_line(const std::vector<std::string>& arguments, std::vector<Command> commands) {
  try {
    choose_cpu_level(std::getenv("ASTERISM_CPU"));
    const int exit_code = run_parsed(arguments, commands);
    // A full disk behind a redirection shows only now.
    std::cout.flush();
    if (!std::cout) run_error("cannot write the result to standard output");
    return exit_code;
  } catch (...) {
    const Failure failure = current_failure();
    process_log().set_status("");
    process_log().error(failure.message);  // into the log file of a run, too
    return failure.exit_code;
  }
}

}  // namespace asterism::cli
