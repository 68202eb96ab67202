#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace asterism::dist {

/// The value of an environment variable; nothing when it is not set. The caller reads the environment, nobody here
/// does.
using Lookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Where a process stands among the processes of its run, and where they meet.
struct Place {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  // among the ranks of this machine, where the launcher says it
  std::string host;               // of the store; empty for a run of one process
  uint16_t port = 0;
  bool store_is_hosted = false;  // the launcher runs the store; otherwise rank 0 does
  std::string run;               // tells the run from others that meet at the same address
  std::string launcher;          // for messages: "torchrun", "Slurm", "mpirun", "--ranks"; empty for one process
};

/// Reads what a launcher has left, innermost first: --ranks, torchrun, Open MPI, PMI (MPICH, Intel), plain RANK and
/// WORLD_SIZE, Slurm (inside srun); none of them: one process. InputError that names the variables when one is missing,
/// is no number or out of range, or when two launchers that cannot contain each other disagree.
Place find_place(const Lookup& lookup);

/// The first machine of a Slurm node list: "rack[2-3]n[07,09],x1" -> "rack2n07".
std::string first_host(const std::string& node_list);

/// What find_place reads for a rank that --ranks starts.
inline constexpr const char* kLauncherVariable = "ASTERISM_LAUNCHER";

}  // namespace asterism::dist
