#pragma once

#include <functional>
#include <optional>

#include "asterism/data/loader.h"
#include "asterism/train/evaluate.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/recipe.h"
#include "asterism/train/run_folder.h"

namespace asterism::train {

struct LoopInputs {
  const Recipe& recipe;
  model::Model& model;
  const std::vector<Parameter>& parameters;
  const data::DataSet& train_data;
  const data::DataSet* eval_data = nullptr;  // none: no evaluation
  const RunFolder& folder;
  int64_t steps = 0;  // of the whole run
  at::ScalarType compute = at::kFloat;
  std::vector<Parameter> buffers = {};  // full_buffers in full fine-tuning
  // Where ranks share the model: `parameters` are then this rank's pieces (shared_parameters.h). All ranks run the
  // loop; the first one writes.
  parallel::ShardedModel* shared = nullptr;
  // Of a shared model: the base weights, for what an adapter holds beside trained tensors. Only the first rank's is
  // used, and its buffers.
  model::SliceReader* base_values = nullptr;
  // What a checkpoint records of its run and compares on resume (resume.h).
  nlohmann::ordered_json recipe_values = nlohmann::ordered_json::object();
  nlohmann::ordered_json base = nlohmann::ordered_json::object();
  std::function<bool()> stop_requested = {};  // asked between steps; the run then saves and ends
  std::function<bool()> save_requested = {};  // asked between steps; the run then saves and goes on
  std::function<void()> on_start = {};        // before the first step of this process; not when none is left to do
  // With every checkpoint, from another thread: writes the pairs of these weights. Of a shared model they are outlines,
  // whose values the reader has (checkpoint/peft.h). Empty without LoRA.
  std::function<void(const std::filesystem::path&, const model::Weights&, model::SliceReader*)> write_adapter = {};
};

struct LoopSummary {
  int64_t first_step = 0;  // updates found in the checkpoint that the run went on from
  int64_t last_step = 0;   // updates done
  double first_loss = 0.0, last_loss = 0.0;
  std::optional<double> eval_loss_before, eval_loss_after;
  int64_t input_tokens = 0, trained_tokens = 0;  // of this process
  double seconds = 0.0;
  bool stopped = false;                     // by a signal, before the last step
  std::filesystem::path state_folder = {};  // the checkpoint of last_step
};

/// Trains from the newest checkpoint (or from the start) to the last step, logging, evaluating and saving as the recipe
/// says. A checkpoint is always left at the end, also after a stop, and completely written on return. RunError when a
/// loss or gradient is not finite (nothing is written over and the weights of that step are not touched) and when a
/// checkpoint cannot be written.
LoopSummary run_loop(const LoopInputs& inputs);

/// Mean loss and accuracy over the whole set, whose rows are read ahead by `workers` threads.
/// With `shared` all ranks call it, each computes a part of the rows, and all get the result of the whole set.
Evaluation evaluate(const model::Model& model, const data::DataSet& data, at::ScalarType compute,
                    int64_t sequence_length, int64_t workers = 0, parallel::ShardedModel* shared = nullptr);

}  // namespace asterism::train
