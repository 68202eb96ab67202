#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace asterism::dist {

/// What a new process runs with.
struct ProcessStart {
  std::string program;                   // path
  std::vector<std::string> arguments;    // the first is the name of the program
  std::vector<std::string> environment;  // NAME=value, all of it
  bool keep_output = false;              // its output is kept; otherwise it goes where that of this process goes
};

/// A child process that ends with the thread that made it, in a process group of its own: what a terminal sends to this
/// process does not reach it. Its stdin is empty.
class RankProcess {
 public:
  /// RunError when the program cannot be started.
  explicit RankProcess(const ProcessStart& start);
  ~RankProcess();  // kills it and waits
  RankProcess(RankProcess&& other) noexcept;
  RankProcess& operator=(RankProcess&&) = delete;

  pid_t id() const { return id_; }
  bool runs() const { return id_ > 0 && !status_; }
  void send(int signal) const;
  /// Looks whether it has ended; true when it has just done so.
  bool poll_end();
  /// How it has ended, as of waitpid.
  int status() const { return *status_; }

  /// A descriptor that becomes readable when there is output to keep; -1 when there is none (any more).
  int output() const { return output_; }
  /// Takes over what there is, without waiting.
  void read_output();
  /// The last lines of what was kept, at most 64 KiB.
  std::string kept_output() const;

 private:
  void close_output();

  pid_t id_ = -1;
  std::optional<int> status_;
  int output_ = -1;
  std::string kept_;
};

}  // namespace asterism::dist
