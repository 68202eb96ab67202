#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace asterism::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + signal when a signal ended it
  std::string out, err;
  /// The last line of `err`.
  std::string last_error_line() const;
};

/// A running build/asterism, or another program of the build folder.
class Program {
 public:
  /// `settings`: NAME=value, set in its environment beside those of this process.
  explicit Program(const std::vector<std::string>& arguments, const std::string& input = "",
                   const std::string& executable = "asterism", const std::vector<std::string>& settings = {});
  ~Program();  // kills it when it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal) const;
  bool runs();
  pid_t id() const { return process_; }
  /// Returns when `ready` is true (true) or the program has ended (false). One that does neither within a minute is
  /// killed.
  bool wait_until(const std::function<bool()>& ready);
  /// Waits for its end.
  ProgramResult result();

 private:
  bool wait(int flags);

  TemporaryFolder folder_;  // its streams are files here
  pid_t process_ = 0;
  std::optional<int> status_;  // of the ended program
};

/// Runs build/asterism with `arguments` and `input` as its stdin.
ProgramResult run_asterism(const std::vector<std::string>& arguments, const std::string& input = "");

/// Starts build/asterism, sends it `signal` as soon as `ready` is true, and waits for its end. No signal is sent to a
/// program that ends before; one that is not ready within a minute is killed.
ProgramResult interrupt_asterism(const std::vector<std::string>& arguments, int signal,
                                 const std::function<bool()>& ready);

struct Kills {
  int rounds = 0, killed = 0;  // tried, and of them those that ended by the kill
};

/// Starts build/asterism with `arguments` again and again and kills it when three more files than before lie in
/// `begun`, until it is done before that: 3 rounds, 50 with ASTERISM_LONG=1. Expects that `result` never exists after a
/// kill.
Kills kill_while_it_writes(const std::vector<std::string>& arguments, const std::filesystem::path& begun,
                           const std::filesystem::path& result);

}  // namespace asterism::testing
