#pragma once

#include <nlohmann/json.hpp>

#include "asterism/checkpoint/train_state.h"
#include "asterism/train/optimizer.h"

namespace asterism::train {

/// What a checkpoint says about its run besides tensors, compared when a run goes on from it.
struct RunRecord {
  nlohmann::ordered_json recipe = nlohmann::ordered_json::object();  // key -> value, every key (resume_rules.h)
  nlohmann::ordered_json base = nlohmann::ordered_json::object();    // what tells the base weights from others
};

/// Everything the run needs to go on after `step` finished updates, in memory of its own on the host: training may go
/// on while it is written. `buffers` are tensors that are not trained but belong to a complete set of weights.
/// With `shared` the optimizer holds this rank's pieces, all ranks call it, and rank 0 gets the state, whole and under
/// global names, as one rank would write it; the others get one without tensors.
checkpoint::TrainState capture_state(int64_t step, const AdamW& optimizer, const std::vector<Parameter>& buffers,
                                     const RunRecord& record, parallel::ShardedModel* shared = nullptr);

/// Puts weights, buffers, moments and update counts back and returns the step; the memory of `state` is not used any
/// more. With `shared` every rank takes its pieces, whatever the mesh was that wrote the state. What has changed and
/// may change is logged. InputError when record, names, shapes or types differ in what must not, naming it.
int64_t restore_state(const checkpoint::TrainState& state, AdamW& optimizer, const std::vector<Parameter>& buffers,
                      const RunRecord& record, const std::string& origin,
                      const parallel::ShardedModel* shared = nullptr);

}  // namespace asterism::train
