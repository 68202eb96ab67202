#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "asterism/checkpoint/stored_tensor.h"
#include "asterism/model/weights.h"

namespace asterism::checkpoint {

/// Adapters merged in memory: what merged files are compared with. It shares no code with AdapterMerge but the rounding
/// to FP8 and FP4.

/// weight + scale * B A (for each expert of packed experts), summed in fp64 and rounded once to fp32. Memory of its
/// own.
at::Tensor merged_values(const model::Projection& projection);

/// Puts the merged values, in fp32, in place of weight and pair of as many matrices as `bytes` hold, small ones first.
/// Returns how many.
int64_t merge_unrounded(const model::Config& config, model::Weights& weights, uint64_t bytes);

/// Merges all pairs and rounds every tensor to its form, by canonical name. The weights are then held as read_weights
/// holds them with ReadOptions::packed.
void merge_rounded(const model::Config& config, model::Weights& weights, const std::map<std::string, Form>& forms);

}  // namespace asterism::checkpoint
