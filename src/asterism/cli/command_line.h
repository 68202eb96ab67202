#pragma once

#include <string>
#include <vector>

#include "asterism/cli/command.h"

namespace asterism::cli {

/// Exit codes of every command (docs/interface of the command line).
enum ExitCode { kDone = 0, kFailed = 1, kWrongInput = 2, kNotEqual = 3, kInterrupted = 130 };

/// Parses the arguments (without the name of the program), runs the command and returns its exit code. Every option
/// `--quiet` of a command works without its doing. No exception leaves: its text is the last line on stderr and its
/// kind decides on the exit code (core/error.h; anything else is kFailed). Wrong usage names the nearest command or
/// option.
int run_command_line(const std::vector<std::string>& arguments, std::vector<Command> commands);

/// Exit code and text for the exception that is being handled.
struct Failure {
  int exit_code;
  std::string message;
};
Failure current_failure();

}  // namespace asterism::cli
