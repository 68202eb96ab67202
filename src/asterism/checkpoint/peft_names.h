#pragma once

#include <map>
#include <string>
#include <string_view>

#include "asterism/checkpoint/names.h"
#include "asterism/model/config.h"
#include "asterism/model/weights.h"
#include "asterism/ops/linear.h"

namespace asterism::checkpoint {

/// How adapter_model.safetensors spells things: base_model.model.<module path>.lora_A.weight, and
/// base_model.model.<tensor name> for the tensors of modules_to_save.
inline constexpr std::string_view kAdapterRoot = "base_model.model.";
inline constexpr std::string_view kLoraA = ".lora_A.weight", kLoraB = ".lora_B.weight";
/// PEFT wraps a module once for each adapted parameter; this leads to the inner wrapper.
inline constexpr std::string_view kInnerWrapper = ".base_layer";

/// Ends of the names of packed experts.
inline constexpr std::string_view kGateUpEnd = ".gate_up_proj", kDownEnd = ".down_proj";

/// How packed experts lie in the file.
enum class AdapterLayout {
  kPeft,       // as PEFT wraps them: one tensor for all experts
  kPerExpert,  // a pair for gate_proj, up_proj and down_proj of each expert, as servers with unpacked experts read
               // them; the pairs of gate_proj and up_proj have the same lora_A. PEFT itself cannot put it on a packed
               // model.
};

/// LoRA pairs by the canonical name of their matrix.
using Pairs = std::map<std::string, ops::LoraPair>;

/// The matrices of a model that may carry LoRA, by name.
std::map<std::string, model::TensorSpec> projection_specs(const model::Config& config);

/// "model.layers.0.mlp.experts" for the packed experts "model.layers.0.mlp.experts.down_proj".
std::string experts_module(const std::string& packed);

/// The path, with kAdapterRoot, under which PEFT 0.21.2 saves the pair of a matrix when `pairs` are saved together: of
/// two parameters of one module gate_up_proj is wrapped first and lies inside, down_proj names the outer wrapper.
std::string adapter_path(const std::string& matrix, const Pairs& pairs);

/// The path of one expert's matrix, in a file that holds a pair for each of them:
/// base_model.model.model.layers.0.mlp.experts.3.gate_proj.
std::string adapter_path_of_part(const CanonicalName& part);

}  // namespace asterism::checkpoint
