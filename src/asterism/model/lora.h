#pragma once

#include <map>
#include <string>
#include <vector>

#include "asterism/model/slices.h"

namespace asterism::model {

struct LoraConfig {
  int64_t rank = 8;
  double alpha = 16.0;
  bool rslora = false;   // scale = alpha / sqrt(rank) instead of alpha / rank
  double dropout = 0.0;  // on plain linear targets; packed experts and o_a_proj have none, as in PEFT
  std::vector<std::string> targets = {"attention", "shared_experts", "experts"};
  std::vector<std::string> modules_to_save = {};  // trained in full beside the pairs and kept in the adapter

  double scale() const;
};

/// "model.layers.3.self_attn.q_a_proj" for "model.layers.3.self_attn.q_a_proj.weight"; packed experts have no suffix.
std::string projection_path(const std::string& tensor_name);

/// True for weights whose LoRA cannot have dropout because PEFT adapts them as parameters: packed experts, the grouped
/// o_a_proj and the router.
bool adapted_as_parameter(const std::string& path);

/// Paths of the projections that the targets select, in the order of the model. A target is a group (attention,
/// shared_experts, experts) or a path with * for any text; a path that does not start with "model." or "mtp." or "*" is
/// meant below every layer ("self_attn.q_b_proj"). The whole path must match, so "self_attn.kv_proj" never hits the
/// compressor's kv_proj. InputError for a target that matches nothing, with the nearest known one.
std::vector<std::string> match_targets(const Config& config, const std::vector<std::string>& targets);

/// The tensors of the modules that `modules` name, in the order of the model: a name is the path of a module or its end
/// ("lm_head", "mlp.gate", "attn_hc"), and stands for all tensors below each module it matches, hash tables and router
/// biases included. MTP blocks are meant only by names that start with "mtp.". InputError for a name that matches
/// nothing, with the nearest known one.
std::vector<TensorSpec> match_modules(const Config& config, const std::vector<std::string>& modules);

/// Fresh pairs on the selected projections: A uniform in +-1 / sqrt(in) (Kaiming-uniform as PEFT initialises), B zero,
/// fp32 (fp64 when the weights are). Values are a function of (seed, path) alone. Returns the adapted paths. A weight
/// that is an outline gets a pair of outlines, whose values FreshLora has.
std::vector<std::string> attach_lora(const Config& config, Weights& weights, const LoraConfig& lora, uint64_t seed);

/// Slices of the pairs that attach_lora makes, by the names of for_each_named_slot; fp32.
class FreshLora : public SliceReader {
 public:
  FreshLora(const Config& config, uint64_t seed);
  void read(const std::string& name, int64_t begin, const at::Tensor& out) override;

 private:
  uint64_t seed_;
  std::map<std::string, int64_t> columns_;  // of A, by path
};

/// Dropout of the attached pairs for training: on plain linear targets; the others keep none (adapted_as_parameter).
void set_lora_dropout(const Config& config, Weights& weights, double dropout);

/// Shapes of the pair of one projection in PEFT's layout.
struct LoraShapes {
  std::vector<int64_t> a, b;
};
LoraShapes lora_shapes(const TensorSpec& spec, int64_t rank);

/// weight + scale * B A (per expert for packed experts), in fp32 (fp64): what an adapter adds, for export and tests.
/// The forward pass never makes it.
at::Tensor merged_weight(const Projection& projection);

}  // namespace asterism::model
