#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "asterism/checkpoint/safetensors.h"

namespace asterism::checkpoint {

/// Everything a run needs to go on: trained tensors and optimizer moments under global names ("param.<name>",
/// "exp_avg.<name>", "exp_avg_sq.<name>"), and a small JSON of counters and settings.
struct TrainState {
  nlohmann::ordered_json info;  // "step" and what the trainer adds
  std::vector<NamedTensor> tensors;
};

/// The checkpoints of one run: step-00000500/ folders, complete or absent, and `latest`, a file with the name of the
/// newest complete one.
class StateFolder {
 public:
  /// `root` is runs/<name>/checkpoints. Left-overs of writes that were cut off are removed.
  explicit StateFolder(std::filesystem::path root);

  /// Writes state.json and state.safetensors of a step into a staging folder, calls `extra` with it (an adapter beside
  /// the state), publishes by one rename, points `latest` at it, and then removes all but the newest `keep` steps.
  /// RunError when something cannot be written: the folder then holds what it held before.
  void save(int64_t step, const TrainState& state, int64_t keep,
            const std::function<void(const std::filesystem::path&)>& extra = {});

  /// Steps with a complete checkpoint, ascending.
  std::vector<int64_t> steps() const;
  std::filesystem::path path_of(int64_t step) const;

 private:
  std::filesystem::path root_;
};

/// Reads a checkpoint folder; tensors are copies. InputError when a part is missing or damaged.
TrainState read_train_state(const std::filesystem::path& folder);

}  // namespace asterism::checkpoint
