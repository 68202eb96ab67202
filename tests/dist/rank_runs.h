#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace asterism::testing {

/// The ranks of one run of dist/rank_program.cpp as processes, under a launcher or each started by itself. No process
/// of the run may be left at its end: that is a failure of the test.
class RankRun {
 public:
  /// `settings`: NAME=value, for all processes.
  explicit RankRun(std::vector<std::string> settings = {});
  ~RankRun();

  /// Starts a launcher of `ranks` ranks of the case `words`.
  Program& launch(int ranks, const std::vector<std::string>& words);
  /// Starts rank `rank` of `size` of the case by itself, as torchrun or srun do; they meet at `port`.
  Program& start(int rank, int size, uint16_t port, const std::vector<std::string>& words);
  /// Any other program of the build folder that starts ranks.
  Program& start_program(const std::string& executable, const std::vector<std::string>& arguments);

 private:
  std::string mark_;
  std::vector<std::string> settings_;
  std::vector<std::unique_ptr<Program>> programs_;
};

/// Runs the case under a launcher to its end.
ProgramResult launch_ranks(int ranks, const std::vector<std::string>& words, std::vector<std::string> settings = {});

/// A port of this machine that nobody listens at.
uint16_t free_port();

/// The process that a rank has announced in the file `name` of `folder`, once it has.
pid_t announced(const TemporaryFolder& folder, const std::string& name);

/// `process` has ended (or is about to be collected), waiting for it up to ten seconds.
bool ends(pid_t process);

}  // namespace asterism::testing
