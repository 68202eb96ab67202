#pragma once

#include <vector>

#include "asterism/checkpoint/peft_config.h"
#include "asterism/checkpoint/peft_names.h"

namespace asterism::checkpoint {

/// Fills what adapter_config.json says about the adapted matrices, so that PEFT wraps exactly those:
///   target_modules     one expression that matches the paths of the adapted linears and of no other module
///   target_parameters  o_a_proj, the router gate and the packed experts, which PEFT cannot wrap as linears; with
///                      AdapterLayout::kPerExpert the linears of the experts are modules
///   rank_pattern, alpha_pattern  for pairs whose rank or scale is not that of adapter.lora
/// `matrices` are all matrices of the model that may carry LoRA, in the order of the network, `pairs` those that do.
/// An internal error for a pair whose shapes do not belong together.
void derive_targets(const std::vector<model::TensorSpec>& matrices, const Pairs& pairs, AdapterLayout layout,
                    AdapterConfig& adapter);

}  // namespace asterism::checkpoint
