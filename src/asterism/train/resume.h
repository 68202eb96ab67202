#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "asterism/checkpoint/train_state.h"
#include "asterism/parallel/sharded_model.h"
#include "asterism/train/optimizer.h"

namespace asterism::train {

/// What the names of trained tensors begin with in a checkpoint.
inline constexpr const char* kParamPrefix = "param.";

/// What a checkpoint says about its run besides tensors, compared when a run goes on from it.
struct RunRecord {
  nlohmann::ordered_json recipe = nlohmann::ordered_json::object();  // key -> value, every key (resume_rules.h)
  nlohmann::ordered_json base = nlohmann::ordered_json::object();    // what tells the base weights from others
};

/// Everything the run needs to go on after `step` finished updates, in memory of its own on the host: training may go
/// on while it is written. `buffers` are tensors that are not trained but belong to a complete set of weights.
checkpoint::TrainState capture_state(int64_t step, const AdamW& optimizer, const std::vector<Parameter>& buffers,
                                     const RunRecord& record);

/// Puts weights, buffers, moments and update counts back and returns the step; the memory of `state` is not used any
/// more. What has changed and may change is logged. InputError when record, names, shapes or types differ in what must
/// not, naming it.
int64_t restore_state(const checkpoint::TrainState& state, AdamW& optimizer, const std::vector<Parameter>& buffers,
                      const RunRecord& record, const std::string& origin);

/// The same of a run whose ranks share the model: the optimizer has this rank's pieces, all ranks call it, and rank 0
/// writes `file` as one rank would write state.safetensors, whole tensors under global names, in slices: no rank ever
/// has more of them in memory than ShardedModel::collect takes. `buffers` and `file` are used on rank 0 alone. Returns
/// what state.json says, on all ranks.
nlohmann::ordered_json write_shared_state(int64_t step, const AdamW& optimizer, const std::vector<Parameter>& buffers,
                                          const RunRecord& record, const parallel::ShardedModel& shared,
                                          const std::filesystem::path& file);

/// Every rank takes its pieces from `values`, which has the tensors of the file, whatever the mesh was that wrote it.
/// Only rank 0, which checks names, shapes, types and buffers, needs the tensors in `state`.
int64_t restore_shared_state(const checkpoint::TrainState& state, AdamW& optimizer,
                             const std::vector<Parameter>& buffers, const RunRecord& record, const std::string& origin,
                             const parallel::ShardedModel& shared, model::SliceReader& values);

}  // namespace asterism::train
