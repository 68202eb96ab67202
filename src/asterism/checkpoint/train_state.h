#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "asterism/checkpoint/safetensors.h"

namespace asterism::checkpoint {

/// Everything a run needs to go on, as docs/checkpoints.md lists it: tensors under global names ("param.<name>",
/// "exp_avg.<name>", "exp_avg_sq.<name>", "buffer.<name>"), and a small JSON of counters and settings.
struct TrainState {
  nlohmann::ordered_json info;  // "step" and what the trainer adds
  std::vector<NamedTensor> tensors;
};

/// A checkpoint whose tensors are still being written: what is below `file` and beside it appears with
/// StateFolder::save, or never.
struct StagedState {
  explicit StagedState(std::filesystem::path target) : folder(std::move(target), /*replace=*/true) {}

  std::filesystem::path file() const { return folder.staging() / "state.safetensors"; }

  AtomicFolder folder;
};

/// The checkpoints of one run: step-00000500/ folders, complete or absent, and `latest`, a file with the name of the
/// newest complete one. A step is the number of updates that were done.
class StateFolder {
 public:
  /// `root` is runs/<name>/checkpoints.
  explicit StateFolder(std::filesystem::path root) : root_(std::move(root)) {}

  /// Puts in order what a killed process left: removes half-written folders, lets `latest` name the newest step. Only
  /// for the one process that writes here.
  void tidy() const;

  /// Writes state.json, state.safetensors and what `extra` adds (an adapter beside the state) into a staging folder,
  /// with a manifest of sizes and checksums, publishes it by one rename, points `latest` at it, and then removes all
  /// but the newest `keep` steps, and those that were set aside. RunError when something cannot be written: every
  /// checkpoint that was there before is there still.
  void save(int64_t step, const TrainState& state, int64_t keep,
            const std::function<void(const std::filesystem::path&)>& extra = {}) const;

  /// The same where the tensors come one by one: whoever called `stage` has written them to StagedState::file.
  std::unique_ptr<StagedState> stage(int64_t step) const;
  void save(int64_t step, StagedState& staged, const nlohmann::ordered_json& info, int64_t keep,
            const std::function<void(const std::filesystem::path&)>& extra = {}) const;

  /// Does all that `save` does with a small state under another name, reads it back and removes it: a folder that
  /// cannot hold checkpoints is found before the first step. RunError.
  void probe(const TrainState& state) const;

  /// For a run that starts again from `step` (0: from the beginning): later steps belong to a past that is not its own.
  /// They get names "abandoned-step-...", so that they are not resumed from, and go when the next save has succeeded.
  void set_aside_after(int64_t step) const;

  /// Steps with a complete checkpoint, ascending.
  std::vector<int64_t> steps() const;
  std::filesystem::path path_of(int64_t step) const;

 private:
  std::filesystem::path root_;
};

/// Compares a checkpoint folder with its manifest and returns what state.json holds; the tensors are in
/// state.safetensors. InputError as read_train_state.
nlohmann::ordered_json read_state_info(const std::filesystem::path& folder);

/// Reads a checkpoint folder after comparing it with its manifest. The tensors are views of the mapped file: not to be
/// written to. InputError when a part is missing, damaged or of another format.
TrainState read_train_state(const std::filesystem::path& folder);

}  // namespace asterism::checkpoint
