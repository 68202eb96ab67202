#include "tests/support/tiny_model.h"

#include <cmath>

#include "asterism/core/rng.h"
#include "asterism/model/initialize.h"

namespace asterism::testing {

nlohmann::ordered_json tiny_config_json() {
  return nlohmann::ordered_json::parse(R"({
    "model_type": "deepseek_v4", "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 5,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 16, "qk_rope_head_dim": 4, "q_lora_rank": 12,
    "o_groups": 2, "o_lora_rank": 8, "n_routed_experts": 6, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "moe_intermediate_size": 16, "compress_ratios": [0, 4, 8, 4, 8, 0], "num_hash_layers": 2, "sliding_window": 6,
    "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "index_n_heads": 8, "index_head_dim": 8, "index_topk": 3,
    "routed_scaling_factor": 1.5, "swiglu_limit": 0.5, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0, "num_nextn_predict_layers": 1, "initializer_range": 0.02,
    "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 4096, "beta_fast": 32,
                     "beta_slow": 1}
  })");
}

model::Config tiny_config() {
  return model::parse_config(tiny_config_json(), "tiny_config");
}

model::Model tiny_model(const model::Config& config, at::ScalarType dtype, uint64_t seed) {
  model::Model model;
  model.config = config;
  model.weights = model::initialize_weights(config, seed, at::kFloat);
  model::for_each_tensor(config, model.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    if (spec.role == model::TensorRole::kTable) return;
    at::Tensor noise = at::empty(spec.shape, at::kDouble);
    fill_normal(RandomStream(seed, "tiny:" + spec.name), noise.data_ptr<double>(), noise.numel(), 1.0);
    if (spec.role == model::TensorRole::kMatrix || spec.name.ends_with("fn")) {
      tensor = noise / std::sqrt(static_cast<double>(spec.shape.back()));
    } else if (spec.role == model::TensorRole::kNorm || spec.name.ends_with("scale")) {
      tensor = 1.0 + 0.25 * noise;
    } else {
      tensor = 0.5 * noise;
    }
    tensor = tensor.to(dtype);
  });
  return model;
}

model::TokenBatch tiny_batch(const model::Config& config, const std::vector<int64_t>& lengths, uint64_t seed) {
  int64_t total = 0;
  for (const int64_t length : lengths) total += length;
  at::Tensor ids = at::empty({total}, at::kLong);
  const RandomStream stream(seed, "tiny_batch");
  for (int64_t t = 0; t < total; ++t) ids[t] = static_cast<int64_t>(stream.below(config.vocab_size, t));
  return model::make_token_batch(ids, ids, lengths);
}

std::vector<std::pair<std::string, at::Tensor>> record_gradients(model::Model& model) {
  std::vector<std::pair<std::string, at::Tensor>> leaves;
  model::for_each_tensor(model.config, model.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    if (spec.role == model::TensorRole::kTable || spec.role == model::TensorRole::kRouterBias) return;
    tensor = tensor.detach().clone().requires_grad_(true);
    leaves.emplace_back(spec.name, tensor);
  });
  return leaves;
}

}  // namespace asterism::testing
