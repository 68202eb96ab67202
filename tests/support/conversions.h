#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/rng.h"

namespace asterism::testing {

inline const checkpoint::Form kBf16 = checkpoint::Form::plain(at::kBFloat16);
inline const checkpoint::Form kFp32 = checkpoint::Form::plain(at::kFloat);

/// config.json of a small model whose matrices can be FP4 and FP8, with partial blocks at every edge.
inline nlohmann::ordered_json conversion_config_json(int64_t mtp_layers) {
  auto json = nlohmann::ordered_json::parse(R"({
    "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "torch_dtype": "bfloat16",
    "vocab_size": 67, "hidden_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 48, "qk_rope_head_dim": 16, "q_lora_rank": 96,
    "o_groups": 2, "o_lora_rank": 40, "n_routed_experts": 3, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 160, "compress_ratios": [0, 4, 128], "num_hash_layers": 1, "sliding_window": 6,
    "hc_mult": 2, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "index_n_heads": 4, "index_head_dim": 32, "index_topk": 3,
    "routed_scaling_factor": 1.5, "swiglu_limit": 0.5, "rms_norm_eps": 1e-6, "rope_theta": 10000,
    "compress_rope_theta": 160000, "initializer_range": 0.02, "transformers_version": "5.23.0",
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 4096, "beta_fast": 32,
                     "beta_slow": 1}
  })");
  json["num_nextn_predict_layers"] = mtp_layers;
  for (int64_t i = 0; i < mtp_layers; ++i) json["compress_ratios"].push_back(0);
  return json;
}

/// Writes a checkpoint of that model whose rows differ by many powers of two, in a storage, and returns its config.
inline model::Config write_conversion_source(const std::filesystem::path& folder, int64_t mtp_layers,
                                             const checkpoint::WriteOptions& options) {
  const model::Config config = model::parse_config(conversion_config_json(mtp_layers), "conversion");
  model::Weights weights;
  model::for_each_tensor(config, weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    if (spec.role == model::TensorRole::kTable) {
      tensor = at::arange(config.num_experts).repeat({spec.shape[0], 1}).narrow(1, 0, spec.shape[1]).contiguous();
      return;
    }
    tensor = at::empty(spec.shape);
    fill_normal(RandomStream(1, spec.name), tensor.data_ptr<float>(), tensor.numel(), 0.05);
    if (spec.role == model::TensorRole::kNorm) tensor = tensor.add(1.0).to(at::kBFloat16).to(at::kFloat);
    if (spec.role != model::TensorRole::kMatrix) return;
    at::Tensor rows = tensor.view({-1, spec.shape.back()});
    rows.mul_(at::exp2(at::arange(rows.size(0)).remainder(9) - 4.0).view({-1, 1}));
  });
  checkpoint::write_checkpoint(folder, config, weights, options);
  return config;
}

/// The stored tensors of a folder, as bytes.
inline std::map<std::string, at::Tensor> stored_tensors_of(const std::filesystem::path& folder) {
  const checkpoint::Source source = checkpoint::Source::open(folder);
  std::map<std::string, at::Tensor> tensors;
  for (const std::string& name : source.names()) tensors[name] = source.tensor(name).clone();
  return tensors;
}

inline bool same_tensors(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.scalar_type() != tensor.scalar_type()) return false;
    if (other->second.sizes() != tensor.sizes()) return false;
    if (!at::equal(other->second.contiguous().view(at::kByte), tensor.contiguous().view(at::kByte))) return false;
  }
  return true;
}

}  // namespace asterism::testing
