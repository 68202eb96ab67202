#pragma once

#include <nlohmann/json.hpp>

#include "asterism/checkpoint/train_state.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/recipe.h"

namespace asterism::train {

/// The settings that a resumed run must share with the run that wrote the checkpoint: the model, what is trained, the
/// data and how rows are made of them. Steps, learning rate, logging, evaluation, recomputation and micro-batch may
/// change.
nlohmann::ordered_json run_identity(const Recipe& recipe, const model::Config& config);

/// Everything the run needs to go on after `step` finished updates.
checkpoint::TrainState capture_state(int64_t step, const AdamW& optimizer, const nlohmann::ordered_json& identity);

/// Puts weights and moments back and returns the step. InputError when identity, names or shapes differ, naming what.
int64_t restore_state(const checkpoint::TrainState& state, AdamW& optimizer, const nlohmann::ordered_json& identity,
                      const std::string& origin);

}  // namespace asterism::train
