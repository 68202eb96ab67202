#include "asterism/model/native_config.h"

#include <algorithm>
#include <cmath>

namespace asterism::model {

namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kOverlappingRatio = 4;  // the reference program overlaps windows exactly here

bool ratios_tell_the_kind(const Config& config) {
  return std::ranges::all_of(config.layers, [](const LayerSpec& layer) {
    return (layer.attention == AttentionKind::kSparse) == (layer.ratio == kOverlappingRatio);
  });
}

bool hash_layers_come_first(const Config& config) {
  return std::ranges::is_partitioned(config.layers,
                                     [](const LayerSpec& layer) { return layer.router == RouterKind::kHash; });
}

// A whole number as the release writes it: 16, not 16.0.
Json number(double value) {
  if (std::abs(value) > 1e15) return value;
  const auto whole = static_cast<int64_t>(value);
  return static_cast<double>(whole) == value ? Json(whole) : Json(value);
}

void write_ratios(const Config& config, Json& out) {
  Json ratios = Json::array();
  for (const LayerSpec& layer : config.layers) ratios.push_back(layer.ratio);
  for (int64_t i = 0; i < config.num_mtp_layers; ++i) ratios.push_back(0);
  out["compress_ratios"] = ratios;
  out.erase("layer_types");
  out.erase("compress_rates");
}

void write_ropes(const Config& config, Json& out) {
  const ops::RopeConfig& rope = config.compress_rope;
  out["rope_theta"] = number(config.main_rope.theta);
  out["compress_rope_theta"] = number(rope.theta);
  out.erase("rope_scaling");
  if (rope.yarn) {
    out["rope_scaling"] = {{"type", "yarn"},
                           {"factor", number(rope.factor)},
                           {"original_max_position_embeddings", number(rope.original_max_positions)},
                           {"beta_fast", number(rope.beta_fast)},
                           {"beta_slow", number(rope.beta_slow)}};
  }
  out.erase("rope_parameters");
  out.erase("partial_rotary_factor");
}

}  // namespace

Json config_to_native_json(const Config& config) {
  Json out = config.raw;
  out["architectures"] = {"DeepseekV4ForCausalLM"};
  out["model_type"] = "deepseek_v4";
  out["qk_rope_head_dim"] = config.rope_dim;
  // Keys that are spelled so already stay as they are written.
  if (out.contains("layer_types") && ratios_tell_the_kind(config)) write_ratios(config, out);
  if (out.contains("mlp_layer_types") && hash_layers_come_first(config)) {
    out["num_hash_layers"] = std::ranges::count(config.layers, RouterKind::kHash, &LayerSpec::router);
    out.erase("mlp_layer_types");
  }
  if (out.contains("rope_parameters") && !config.main_rope.yarn) write_ropes(config, out);
  return out;
}

}  // namespace asterism::model
