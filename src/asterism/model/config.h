#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "asterism/ops/hyper_connection.h"
#include "asterism/ops/rope.h"

namespace asterism::model {

enum class AttentionKind {
  kSliding,  // window only (SWA)
  kSparse,   // window and the indexer's choice of compressed entries (CSA), overlapping windows
  kHeavy,    // window and all visible entries (HCA)
};

enum class RouterKind { kHash, kTopK };

struct LayerSpec {
  AttentionKind attention = AttentionKind::kSliding;
  int64_t ratio = 0;  // tokens per compressed entry; 0 for kSliding
  RouterKind router = RouterKind::kTopK;
};

/// Architecture of a DeepSeek-V4 model (model-spec section 1). Nothing of the sizes is built in.
struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;  // D
  int64_t num_heads = 0;    // H
  int64_t head_dim = 0;     // P
  int64_t rope_dim = 0;     // rotating channels of P
  int64_t q_lora_rank = 0;
  int64_t o_groups = 0;
  int64_t o_lora_rank = 0;
  int64_t expert_width = 0;       // I, routed and shared
  int64_t num_experts = 0;        // E
  int64_t experts_per_token = 0;  // K
  double routed_scaling_factor = 1.0;
  double swiglu_limit = 0.0;   // 0: no clamp
  int64_t sliding_window = 0;  // keys visible per query, itself included
  int64_t index_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int64_t num_streams = 0;  // hc_mult
  int64_t sinkhorn_iterations = 0;
  double hc_eps = 1e-6;
  double rms_norm_eps = 1e-6;
  ops::RopeConfig main_rope;      // layers without compression, and MTP
  ops::RopeConfig compress_rope;  // everything in layers with compression
  double initializer_range = 0.02;
  int64_t bos_token_id = 0;
  int64_t eos_token_id = 1;
  int64_t num_mtp_layers = 0;
  std::vector<LayerSpec> layers;

  /// The file as it was read: unknown keys survive a save.
  nlohmann::ordered_json raw;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  ops::HyperConnectionConfig hyper_connection() const { return {sinkhorn_iterations, hc_eps, rms_norm_eps}; }
  /// The MTP block's layer: window only, learned router (5.2).
  static LayerSpec mtp_layer() { return {}; }
};

/// Reads config.json in DeepSeek's spelling (compress_ratios, rope_scaling, num_hash_layers, ...) or as Hugging Face
/// saves it (layer_types, compress_rates, mlp_layer_types, rope_parameters). `origin` names the source in errors.
/// InputError for a missing or impossible value, another model_type, or features that are not DeepSeek-V4's.
Config parse_config(const nlohmann::ordered_json& json, const std::string& origin);
Config read_config(const std::filesystem::path& file);

/// config.json as Hugging Face saves it, with unknown keys of `config.raw` kept.
nlohmann::ordered_json config_to_json(const Config& config);

}  // namespace asterism::model
