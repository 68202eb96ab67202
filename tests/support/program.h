#pragma once

#include <functional>
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

/// Starts build/asterism, sends it `signal` as soon as `ready` is true, and waits for its end. No signal is sent to a
/// program that ends before; one that is not ready within a minute is killed.
ProgramResult interrupt_asterism(const std::vector<std::string>& arguments, int signal,
                                 const std::function<bool()>& ready);

}  // namespace asterism::testing
