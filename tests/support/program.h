#pragma once

#include <string>
#include <vector>

namespace asterism::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
  /// The last line of `err`.
  std::string last_error_line() const;
};

/// Runs build/asterism with `arguments` and `input` as its stdin.
ProgramResult run_asterism(const std::vector<std::string>& arguments, const std::string& input = "");

}  // namespace asterism::testing
