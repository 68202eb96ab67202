#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "asterism/checkpoint/peft_config.h"
#include "asterism/model/config.h"
#include "asterism/model/weights.h"
#include "asterism/ops/linear.h"

namespace asterism::checkpoint {

/// LoRA pairs by the canonical name of the matrix they update (TensorSpec.name). The layout of A and B is PEFT's and
/// that of ops/linear.h and ops/experts.h at once, so pairs travel without any rearrangement.
struct Adapter {
  AdapterConfig config;
  std::map<std::string, ops::LoraPair> pairs;
};

/// Reads adapter_config.json and adapter_model.safetensors as PEFT 0.21.2 saves them; the matrices become fp32.
/// Names are base_model.model.<module path>.lora_A.weight (lora_B.weight). Of packed experts, both adapted:
/// mlp.experts.base_layer is gate_up_proj and mlp.experts is down_proj; one adapted: mlp.experts, and target_parameters
/// says which. InputError that lists all tensors which match no matrix of the model, lack their partner or have another
/// shape than matrix and rank demand, and for what read_adapter_config refuses.
Adapter read_adapter(const std::filesystem::path& folder, const model::Config& config);

/// Gives every matrix its pair; matrices without one keep what they have. The dropout of the projections is not
/// touched. An internal error when the adapter names a matrix that the model lacks.
void attach(const Adapter& adapter, const model::Config& config, model::Weights& weights);

/// Writes the pairs that `weights` hold into `folder`, which appears complete or not at all. rank, alpha, rslora,
/// dropout and base_model come from `adapter`; the targets are derived from the pairs: target_modules is one expression
/// that matches exactly the adapted linears, target_parameters names o_a_proj, the router gate and the packed experts,
/// which are no linears of their own to PEFT. An internal error when there is no pair or one does not have the rank of
/// `adapter`; RunError when the files cannot be written; InputError for an existing folder unless `replace`.
void write_adapter(const std::filesystem::path& folder, const AdapterConfig& adapter, const model::Config& config,
                   const model::Weights& weights, bool replace = false);

}  // namespace asterism::checkpoint
