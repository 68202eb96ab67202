#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace asterism::dist {

struct LaunchOptions {
  int ranks = 1;
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;    // of every rank; the first is the name of the program
  std::vector<std::string> environment;  // NAME=value that the ranks inherit
  int cores = 0;                         // to be divided between the ranks; 0: those that this process may use
  /// After a failure the other ranks have this long to end by themselves; then they are terminated, and killed soon
  /// after.
  std::chrono::milliseconds end_grace = std::chrono::seconds(8);
  std::chrono::milliseconds kill_grace = std::chrono::milliseconds(1500);
};

/// Runs the ranks of a run as processes of this machine and returns when all have ended. They meet at a store in this
/// process (find_place reads what it leaves in their environment) and get the cores in equal parts (OMP_NUM_THREADS,
/// unless it is set). The output of rank 0 goes where that of this process goes, at once; that of the others is shown
/// when they fail, each line with "rank 3: " before it, and the last line of stderr names the rank that failed first
/// and why. SIGINT, SIGTERM and SIGUSR1 are passed on to every rank, each once. Must be called on the main thread: the
/// ranks end with it.
///
/// Returns 0 when all ranks return 0, 130 when they ended for a signal, else the exit code of the rank that failed
/// first (1 when a signal killed it).
int launch(const LaunchOptions& options);

}  // namespace asterism::dist
