#pragma once

#include <cstdint>

#include "asterism/model/config.h"
#include "asterism/train/recipe.h"

namespace asterism::train {

/// What a checkpoint of a run takes on disk, from shapes alone: no weights are needed.
struct CheckpointSize {
  int64_t trained_numbers = 0;
  uint64_t state_bytes = 0;    // fp32 masters and two moments of each, buffers, the header of the file
  uint64_t adapter_bytes = 0;  // the PEFT adapter beside it, fp32; 0 in full fine-tuning

  uint64_t bytes() const { return state_bytes + adapter_bytes; }
};

/// With lora.from, rank and targets of the adapter must be in the recipe.
CheckpointSize checkpoint_size(const Recipe& recipe, const model::Config& config);

}  // namespace asterism::train
