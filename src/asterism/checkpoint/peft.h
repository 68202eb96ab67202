#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "asterism/checkpoint/peft_binding.h"
#include "asterism/checkpoint/peft_config.h"
#include "asterism/model/config.h"
#include "asterism/model/lora.h"
#include "asterism/model/slices.h"
#include "asterism/model/weights.h"
#include "asterism/ops/linear.h"

namespace asterism::checkpoint {

/// LoRA pairs by the canonical name of the matrix they update (TensorSpec.name), and the tensors of modules_to_save.
/// The layout of A and B is PEFT's and that of ops/linear.h and ops/experts.h at once, so pairs travel without any
/// rearrangement.
struct Adapter {
  AdapterConfig config;
  BoundAdapter tensors;
};

/// Reads adapter_config.json and adapter_model.safetensors as PEFT 0.21.2 saves them; the matrices become fp32.
/// Names are base_model.model.<module path>.lora_A.weight (lora_B.weight). Of packed experts, both adapted:
/// mlp.experts.base_layer is gate_up_proj and mlp.experts is down_proj; one adapted: mlp.experts, and target_parameters
/// says which. A pair for each matrix of each expert is read as well. InputError for what bind_adapter and
/// read_adapter_config refuse.
Adapter read_adapter(const std::filesystem::path& folder, const model::Config& config);

/// What load_adapter attached: enough to go on training and to write the adapter again.
struct LoadedAdapter {
  model::LoraConfig lora;          // targets are the paths below
  std::vector<std::string> paths;  // of the adapted matrices (model::projection_path), in the order of the model
};

/// read_adapter, then every named matrix gets its pair: fp32, or fp64 for a weight in fp64, and the tensors of
/// modules_to_save take the place of the model's. The dropout of the projections is left alone: it is the next run's
/// to choose.
LoadedAdapter load_adapter(const std::filesystem::path& folder, const model::Config& config, model::Weights& weights);

/// Writes the pairs that `weights` hold, and the tensors of lora.modules_to_save, into `folder`, which appears complete
/// or not at all. rank, alpha, rslora and dropout come from `lora`, whose targets are not used (derive_targets finds
/// them); pairs of another rank or scale get patterns. `base_model` becomes base_model_name_or_path ("" for none).
/// Tensors that are outlines are read from `values` while they are written, by the names of model::for_each_named_slot
/// (not in AdapterLayout::kPerExpert).
/// An internal error when there is nothing to write; RunError when the files cannot be written; without `replace` an
/// InputError for an existing folder.
void write_adapter(const std::filesystem::path& folder, const model::Config& config, const model::Weights& weights,
                   const model::LoraConfig& lora, const std::string& base_model, bool replace = true,
                   AdapterLayout layout = AdapterLayout::kPeft, model::SliceReader* values = nullptr);

/// The names in adapter_model.safetensors of the pairs that `weights` hold, by path + ".lora_A.weight"
/// (".lora_B.weight").
std::map<std::string, std::string> adapter_tensor_names(const model::Config& config, const model::Weights& weights);

}  // namespace asterism::checkpoint
