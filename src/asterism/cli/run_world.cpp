#include "asterism/cli/run_world.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "asterism/core/error.h"
#include "asterism/dist/checking_transport.h"
#include "asterism/dist/gloo_transport.h"
#include "asterism/dist/launch.h"
#include "asterism/dist/thread_transport.h"

namespace asterism::cli {

namespace {

std::optional<std::string> environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// To find the first collective in which ranks disagree (docs/parallelism.md).
bool checks_collectives() {
  return environment("ASTERISM_CHECK_COLLECTIVES").value_or("0") == "1";
}

}  // namespace

std::optional<int> launch_ranks(int64_t ranks, const std::vector<std::string>& arguments) {
  if (ranks == 0) return std::nullopt;
  constexpr int64_t kMostRanks = 4096;  // processes of one machine
  if (ranks < 0 || ranks > kMostRanks) {
    input_error("--ranks: expected a number of processes, 1 to ", kMostRanks, ", got ", ranks);
  }
  const dist::Place place = dist::find_place(environment);
  if (!place.launcher.empty()) {
    input_error("--ranks ", ranks, ": this process is rank ", place.rank, " of ", place.size, " of ", place.launcher,
                " already; leave --ranks out");
  }
  if (ranks == 1) return std::nullopt;
  dist::LaunchOptions options;
  options.ranks = static_cast<int>(ranks);
  options.arguments = arguments;
  for (char** entry = environ; *entry != nullptr; ++entry) options.environment.emplace_back(*entry);
  return dist::launch(options);
}

std::shared_ptr<dist::World> join_world() {
  return std::make_shared<dist::World>(dist::find_place(environment));
}

WorkInProgress::WorkInProgress(dist::World& world) {
  if (world.size() == 1) return;
  thread_ = std::thread([this, &world] {
    while (!ended_) {
      world.show_progress();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
}

WorkInProgress::~WorkInProgress() {
  ended_ = true;
  if (thread_.joinable()) thread_.join();
}

parallel::Mesh mesh_of(const train::Recipe& recipe, int ranks) {
  const train::ParallelSection& section = recipe.parallel;
  return parallel::make_mesh(
      ranks, {static_cast<int>(section.expert), static_cast<int>(section.shard), static_cast<int>(section.replicate)});
}

bool shares_model(const train::Recipe& recipe, const parallel::Mesh& mesh) {
  return mesh.ranks > 1 || recipe.train.deterministic == train::Determinism::kStrict;
}

parallel::MeshComms make_comms(const std::shared_ptr<dist::World>& world, const parallel::Mesh& mesh) {
  std::shared_ptr<dist::Transport> transport =
      world->size() > 1 ? dist::make_gloo_transport(world) : dist::make_thread_transports(1).front();
  if (checks_collectives()) transport = dist::make_checking_transport(transport);
  return parallel::make_mesh_comms(std::make_shared<dist::Comm>(transport, "world"), mesh);
}

}  // namespace asterism::cli
