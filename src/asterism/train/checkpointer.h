#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "asterism/checkpoint/train_state.h"
#include "asterism/core/background_task.h"
#include "asterism/data/stream_position.h"
#include "asterism/train/loop.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/resume.h"

namespace asterism::train {

/// The checkpoints of a running loop: finds the one to go on from, and writes new ones beside the training, one at a
/// time. A write that fails is a RunError of the next call of check, take or finish; the checkpoints before it are
/// intact. Where ranks share the model, all call resume and take, and the first one prepares and writes: there `take`
/// brings the tensors to its file in slices, for no rank could hold a snapshot of all of them, and only the rest is
/// done beside the training.
class Checkpointer {
 public:
  /// Both must outlive it.
  Checkpointer(const LoopInputs& inputs, AdamW& optimizer);

  /// Puts the folder in order, restores what the recipe asks for and returns the updates done: 0 for a new run.
  /// InputError for a checkpoint that is damaged or belongs to another run; it says how to go on from an older one,
  /// which is never chosen silently.
  int64_t resume();

  /// Before the first step after `done` updates: sets later checkpoints aside, compares the free space with what the
  /// run will write, and writes and reads a trial checkpoint. RunError.
  void prepare(int64_t done);

  /// Takes a snapshot of the run after `step` updates, waiting first for a write that is still on its way. Returns the
  /// seconds for which training stood still. `next_row` is where its next step begins.
  double take(int64_t step, const data::StreamPosition& next_row);
  /// Writes the snapshot in the background, after the lines of metrics.jsonl up to its step, and then the adapter of
  /// the run folder. `metrics_bytes`: the length of metrics.jsonl with that step.
  void write(uint64_t metrics_bytes);

  void check() { task_.check(); }
  /// Waits until everything is written.
  void finish() { task_.wait(); }

  /// The newest checkpoint that this process has restored or written; "" when there is none.
  const std::filesystem::path& state_folder() const { return state_folder_; }

  /// Where the first step of this process begins in the training data.
  const data::StreamPosition& first_row() const { return first_row_; }
  /// The length of metrics.jsonl that the checkpoint recorded; nothing when the run did not go on from one of its own.
  std::optional<uint64_t> metrics_bytes() const { return metrics_bytes_; }

 private:
  std::optional<std::filesystem::path> folder_to_resume() const;
  /// What the first rank finds, after it has put the folder in order.
  std::optional<std::filesystem::path> agreed_folder() const;
  checkpoint::TrainState read(const std::filesystem::path& folder) const;
  int64_t restore(const checkpoint::TrainState& state, const std::filesystem::path& folder);
  int64_t restore_shared(const checkpoint::TrainState& state, const std::filesystem::path& folder);
  void save(const checkpoint::TrainState& snapshot, checkpoint::StagedState* staged);
  void check_space(int64_t done) const;

  const LoopInputs& inputs_;
  AdamW& optimizer_;
  const checkpoint::StateFolder states_;
  RunRecord record_;
  data::StreamPosition first_row_;
  std::optional<uint64_t> metrics_bytes_;
  std::filesystem::path state_folder_;
  checkpoint::TrainState snapshot_;
  std::unique_ptr<checkpoint::StagedState> staged_;  // of a shared model, on the first rank, with the tensors
  BackgroundTask task_;                              // last: destroyed, and so waited for, first
};

}  // namespace asterism::train
