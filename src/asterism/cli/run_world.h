#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "asterism/dist/world.h"
#include "asterism/parallel/sharded_model.h"
#include "asterism/train/recipe.h"

namespace asterism::cli {

/// Starts `ranks` processes of this program with `arguments` and returns their exit code (dist/launch.h); nothing when
/// this process is one of them already, or when only one is asked for. InputError when it is a rank of another number.
std::optional<int> launch_ranks(int64_t ranks, const std::vector<std::string>& arguments);

/// This process among the ranks of its run, by what the launcher has left in the environment.
std::shared_ptr<dist::World> join_world();

/// Tells the other ranks that this one works, while it lives: around what takes long without a collective.
class WorkInProgress {
 public:
  explicit WorkInProgress(dist::World& world);
  ~WorkInProgress();
  WorkInProgress(const WorkInProgress&) = delete;
  WorkInProgress& operator=(const WorkInProgress&) = delete;

 private:
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// The mesh of the recipe on so many ranks. InputError when it does not fit.
parallel::Mesh mesh_of(const train::Recipe& recipe, int ranks);

/// Whether a run shares its model: on several ranks, and in strict mode on one, which sums as many ranks would.
bool shares_model(const train::Recipe& recipe, const parallel::Mesh& mesh);

/// The groups of this rank. All ranks call it.
parallel::MeshComms make_comms(const std::shared_ptr<dist::World>& world, const parallel::Mesh& mesh);

}  // namespace asterism::cli
