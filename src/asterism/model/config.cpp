#include "asterism/model/config.h"

#include <cmath>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/shortened.h"
#include "asterism/core/strict_json.h"

namespace asterism::model {

namespace {

using Json = nlohmann::ordered_json;

// Sizes are multiplied with each other: products of two stay within 63 bits.
constexpr int64_t kMaxSize = 1'000'000'000;
constexpr int64_t kMaxMtpLayers = 100;

constexpr const char* kSlidingName = "sliding_attention";
constexpr const char* kSparseName = "compressed_sparse_attention";
constexpr const char* kHeavyName = "heavily_compressed_attention";

// Typed access to the keys of a config file, with errors that name file and key.
class Reader {
 public:
  Reader(const Json& json, std::string origin) : json_(json), origin_(std::move(origin)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  const Json& at(const char* key) const {
    if (!has(key)) input_error(origin_, ": key \"", key, "\" is missing");
    return json_.at(key);
  }
  Reader child(const char* key) const {
    const Json& value = at(key);
    if (!value.is_object()) fail(key, "an object", value);
    return {value, text(origin_, ", ", key)};
  }
  int64_t size(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > kMaxSize) {
      fail(key, text("a positive integer up to ", kMaxSize), value);
    }
    return value.get<int64_t>();
  }
  int64_t size(const char* key, int64_t fallback) const { return has(key) ? size(key) : fallback; }
  int64_t count(const char* key, int64_t fallback) const {
    if (!has(key)) return fallback;
    const Json& value = at(key);
    if (!value.is_number_integer() || value.get<int64_t>() < 0) fail(key, "an integer from 0 on", value);
    return value.get<int64_t>();
  }
  double number(const char* key) const {
    const Json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, "a finite number", value);
    return value.get<double>();
  }
  double number(const char* key, double fallback) const { return has(key) ? number(key) : fallback; }
  std::string word(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) fail(key, "a string", value);
    return value.get<std::string>();
  }
  // A feature this model does not have: the key may be absent or say so.
  template <typename T>
  void require(const char* key, const T& expected) const {
    if (has(key) && at(key) != Json(expected)) fail(key, Json(expected).dump(), at(key));
  }
  [[noreturn]] void fail(const char* key, const std::string& expected, const Json& found) const {
    input_error(origin_, ": key \"", key, "\": expected ", expected, ", found ", shortened(found.dump()));
  }
  const std::string& origin() const { return origin_; }

 private:
  const Json& json_;
  std::string origin_;
};

AttentionKind attention_kind(const Reader& reader, const Json& name) {
  if (name == kSlidingName) return AttentionKind::kSliding;
  if (name == kSparseName) return AttentionKind::kSparse;
  if (name == kHeavyName) return AttentionKind::kHeavy;
  reader.fail("layer_types", text("entries ", kSlidingName, ", ", kSparseName, " or ", kHeavyName), name);
}

const char* attention_name(AttentionKind kind) {
  if (kind == AttentionKind::kSliding) return kSlidingName;
  return kind == AttentionKind::kSparse ? kSparseName : kHeavyName;
}

// Hugging Face: layer_types and compress_rates.
void read_layer_types(const Reader& reader, int64_t num_layers, std::vector<LayerSpec>& layers) {
  const Json& types = reader.at("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
    reader.fail("layer_types", text("a list of num_hidden_layers = ", num_layers, " names"), types);
  }
  for (const Json& name : types) {
    LayerSpec layer;
    layer.attention = attention_kind(reader, name);
    if (layer.attention != AttentionKind::kSliding) {
      layer.ratio = reader.child("compress_rates").size(attention_name(layer.attention));
    }
    layers.push_back(layer);
  }
}

// DeepSeek: one ratio a layer, then those of the MTP layers. REF overlaps windows exactly where the ratio is 4.
void read_compress_ratios(const Reader& reader, int64_t num_layers, std::vector<LayerSpec>& layers) {
  const Json& ratios = reader.at("compress_ratios");
  if (!ratios.is_array() || static_cast<int64_t>(ratios.size()) < num_layers) {
    reader.fail("compress_ratios", text("a list of at least num_hidden_layers = ", num_layers, " integers"), ratios);
  }
  int64_t heavy_ratio = 0;
  for (int64_t i = 0; i < num_layers; ++i) {
    const Json& ratio = ratios.at(i);
    if (!ratio.is_number_integer() || ratio.get<int64_t>() < 0 || ratio.get<int64_t>() > kMaxSize) {
      reader.fail("compress_ratios", text("integers from 0 to ", kMaxSize), ratio);
    }
    LayerSpec layer;
    layer.ratio = ratio.get<int64_t>();
    if (layer.ratio == 4) layer.attention = AttentionKind::kSparse;
    if (layer.ratio > 0 && layer.ratio != 4) {
      layer.attention = AttentionKind::kHeavy;
      if (heavy_ratio != 0 && heavy_ratio != layer.ratio) {
        reader.fail("compress_ratios", text("one ratio for all heavily compressed layers (", heavy_ratio, ")"), ratio);
      }
      heavy_ratio = layer.ratio;
    }
    layers.push_back(layer);
  }
  for (size_t i = num_layers; i < ratios.size(); ++i) {
    if (ratios.at(i) != Json(0)) reader.fail("compress_ratios", "0 for the MTP layers at the end", ratios.at(i));
  }
}

void read_layers(const Reader& reader, Config& config) {
  const int64_t num_layers = reader.size("num_hidden_layers");
  if (reader.has("layer_types")) {
    read_layer_types(reader, num_layers, config.layers);
  } else if (reader.has("compress_ratios")) {
    read_compress_ratios(reader, num_layers, config.layers);
  } else {
    input_error(reader.origin(),
                ": neither \"layer_types\" nor \"compress_ratios\" says which attention each layer has");
  }
  if (reader.has("mlp_layer_types")) {
    const Json& types = reader.at("mlp_layer_types");
    if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
      reader.fail("mlp_layer_types", text("a list of num_hidden_layers = ", num_layers, " names"), types);
    }
    for (int64_t i = 0; i < num_layers; ++i) {
      const Json& name = types.at(i);
      if (name != "hash_moe" && name != "moe") reader.fail("mlp_layer_types", "entries hash_moe or moe", name);
      config.layers[i].router = name == "hash_moe" ? RouterKind::kHash : RouterKind::kTopK;
    }
  } else if (reader.has("num_hash_layers")) {
    const int64_t hashed = reader.count("num_hash_layers", 0);
    for (int64_t i = 0; i < num_layers; ++i) {
      config.layers[i].router = i < hashed ? RouterKind::kHash : RouterKind::kTopK;
    }
  } else {
    input_error(reader.origin(),
                ": neither \"mlp_layer_types\" nor \"num_hash_layers\" says which router each layer has");
  }
}

ops::RopeConfig read_rope(const Reader& parameters, int64_t width, double theta) {
  ops::RopeConfig rope;
  rope.width = width;
  rope.theta = theta;
  const char* type_key = parameters.has("rope_type") ? "rope_type" : "type";
  const std::string type = parameters.has(type_key) ? parameters.word(type_key) : "default";
  if (type == "default") return rope;
  if (type != "yarn") parameters.fail(type_key, "\"default\" or \"yarn\"", parameters.at(type_key));
  parameters.require("attention_factor", 1.0);
  rope.yarn = true;
  rope.factor = parameters.number("factor");
  rope.original_max_positions = parameters.number("original_max_position_embeddings");
  rope.beta_fast = parameters.number("beta_fast", 32.0);
  rope.beta_slow = parameters.number("beta_slow", 1.0);
  return rope;
}

int64_t read_rope_width(const Reader& reader, int64_t head_dim) {
  std::optional<int64_t> width;
  const auto agree = [&](const char* key, int64_t value) {
    if (width && *width != value) {
      input_error(reader.origin(), ": key \"", key, "\" gives ", value, " rotating channels, another key gives ",
                  *width);
    }
    width = value;
  };
  if (reader.has("qk_rope_head_dim")) agree("qk_rope_head_dim", reader.size("qk_rope_head_dim"));
  if (reader.has("partial_rotary_factor")) {
    agree("partial_rotary_factor", std::llround(head_dim * reader.number("partial_rotary_factor")));
  }
  if (reader.has("rope_parameters") && reader.child("rope_parameters").has("main")) {
    const Reader main = reader.child("rope_parameters").child("main");
    if (main.has("partial_rotary_factor")) {
      agree("rope_parameters.main.partial_rotary_factor",
            std::llround(head_dim * main.number("partial_rotary_factor")));
    }
  }
  if (!width) input_error(reader.origin(), ": key \"qk_rope_head_dim\" is missing");
  if (*width % 2 != 0 || *width < 0 || *width > head_dim) {
    input_error(reader.origin(), ": the rotating channels must be even and from 0 to head_dim = ", head_dim, ", found ",
                *width);
  }
  return *width;
}

void read_ropes(const Reader& reader, Config& config) {
  config.rope_dim = read_rope_width(reader, config.head_dim);
  if (reader.has("rope_parameters") && reader.child("rope_parameters").has("main")) {
    const Reader parameters = reader.child("rope_parameters");
    const Reader main = parameters.child("main"), compress = parameters.child("compress");
    config.main_rope = read_rope(main, config.rope_dim, main.number("rope_theta"));
    config.compress_rope = read_rope(compress, config.rope_dim, compress.number("rope_theta"));
    return;
  }
  config.main_rope.width = config.rope_dim;
  config.main_rope.theta = reader.number("rope_theta");
  const double theta = reader.number("compress_rope_theta");
  // YaRN belongs to the compressed layers only.
  config.compress_rope = reader.has("rope_scaling") ? read_rope(reader.child("rope_scaling"), config.rope_dim, theta)
                                                    : ops::RopeConfig{.width = config.rope_dim, .theta = theta};
}

void check(const Reader& reader, const Config& c) {
  const auto require = [&](bool ok, const std::string& rule) {
    if (!ok) input_error(reader.origin(), ": ", rule);
  };
  require(c.num_heads % c.o_groups == 0,
          text("num_attention_heads = ", c.num_heads, " must be a multiple of o_groups = ", c.o_groups));
  require(c.experts_per_token <= c.num_experts,
          text("num_experts_per_tok = ", c.experts_per_token, " exceeds n_routed_experts = ", c.num_experts));
  require(c.num_streams <= 8, text("hc_mult = ", c.num_streams, " is more than the 8 streams supported"));
  for (const LayerSpec& layer : c.layers) {
    if (layer.attention != AttentionKind::kSparse) continue;
    require(c.index_head_dim >= c.rope_dim,
            text("index_head_dim = ", c.index_head_dim, " is smaller than the rotating channels ", c.rope_dim));
  }
}

// One id, or a list of which the first counts.
int64_t read_end_token(const Reader& reader) {
  const char* key = "eos_token_id";
  if (!reader.has(key) || !reader.at(key).is_array()) return reader.count(key, 1);
  const Json& ids = reader.at(key);
  if (ids.empty() || !ids.at(0).is_number_integer()) reader.fail(key, "a token id or a list of them", ids);
  return ids.at(0).get<int64_t>();
}

void refuse_other_models(const Reader& reader) {
  reader.require("model_type", "deepseek_v4");
  reader.require("num_key_value_heads", 1);
  reader.require("n_shared_experts", 1);
  reader.require("scoring_func", "sqrtsoftplus");
  reader.require("topk_method", "noaux_tc");
  reader.require("norm_topk_prob", true);
  reader.require("hidden_act", "silu");
  reader.require("attention_bias", false);
  reader.require("mlp_bias", false);
  reader.require("attention_dropout", 0.0);
  reader.require("tie_word_embeddings", false);
}

}  // namespace

Config parse_config(const Json& json, const std::string& origin) {
  if (!json.is_object()) input_error(origin, ": expected a JSON object, found ", json.type_name());
  const Reader reader(json, origin);
  reader.at("model_type");
  refuse_other_models(reader);
  Config c;
  c.raw = json;
  c.vocab_size = reader.size("vocab_size");
  c.hidden_size = reader.size("hidden_size");
  c.num_heads = reader.size("num_attention_heads");
  c.head_dim = reader.size("head_dim");
  c.q_lora_rank = reader.size("q_lora_rank");
  c.o_groups = reader.size("o_groups");
  c.o_lora_rank = reader.size("o_lora_rank");
  c.expert_width = reader.size("moe_intermediate_size");
  c.num_experts = reader.size("n_routed_experts");
  c.experts_per_token = reader.size("num_experts_per_tok");
  c.routed_scaling_factor = reader.number("routed_scaling_factor");
  c.swiglu_limit = reader.number("swiglu_limit", 0.0);
  c.sliding_window = reader.size("sliding_window");
  c.num_streams = reader.size("hc_mult");
  c.sinkhorn_iterations = reader.size("hc_sinkhorn_iters", 20);
  c.hc_eps = reader.number("hc_eps", 1e-6);
  c.rms_norm_eps = reader.number("rms_norm_eps", 1e-6);
  c.initializer_range = reader.number("initializer_range", 0.02);
  c.bos_token_id = reader.count("bos_token_id", 0);
  c.eos_token_id = read_end_token(reader);
  c.num_mtp_layers = reader.count("num_nextn_predict_layers", 0);
  if (c.num_mtp_layers > kMaxMtpLayers) {
    reader.fail("num_nextn_predict_layers", text("at most ", kMaxMtpLayers), reader.at("num_nextn_predict_layers"));
  }
  read_layers(reader, c);
  for (const LayerSpec& layer : c.layers) {
    if (layer.attention != AttentionKind::kSparse) continue;
    c.index_heads = reader.size("index_n_heads");
    c.index_head_dim = reader.size("index_head_dim");
    c.index_topk = reader.size("index_topk");
  }
  read_ropes(reader, c);
  check(reader, c);
  return c;
}

Config read_config(const std::filesystem::path& file) {
  return parse_config(parse_ordered_json(read_text(file), file.string()), file.string());
}

Json config_to_json(const Config& c) {
  Json out = c.raw;
  // The DeepSeek spellings of what follows: a reader must not find two sources.
  for (const char* key :
       {"compress_ratios", "num_hash_layers", "rope_scaling", "quantization_config", "expert_dtype"}) {
    out.erase(key);
  }
  out["architectures"] = {"DeepseekV4ForCausalLM"};
  out["model_type"] = "deepseek_v4";
  out["num_hidden_layers"] = c.num_layers();
  out["qk_rope_head_dim"] = c.rope_dim;
  const double rotary = static_cast<double>(c.rope_dim) / static_cast<double>(c.head_dim);
  out["partial_rotary_factor"] = rotary;
  Json types = Json::array(), routers = Json::array();
  Json rates = {{kSparseName, 4}, {kHeavyName, 128}};
  for (const LayerSpec& layer : c.layers) {
    types.push_back(attention_name(layer.attention));
    routers.push_back(layer.router == RouterKind::kHash ? "hash_moe" : "moe");
    if (layer.ratio > 0) rates[attention_name(layer.attention)] = layer.ratio;
  }
  out["layer_types"] = types;
  out["mlp_layer_types"] = routers;
  out["compress_rates"] = rates;
  const auto rope = [&](const ops::RopeConfig& config) {
    Json json = {{"rope_type", config.yarn ? "yarn" : "default"},
                 {"rope_theta", config.theta},
                 {"partial_rotary_factor", rotary}};
    if (config.yarn) {
      json["factor"] = config.factor;
      json["original_max_position_embeddings"] = static_cast<int64_t>(config.original_max_positions);
      json["beta_fast"] = config.beta_fast;
      json["beta_slow"] = config.beta_slow;
      json["attention_factor"] = 1.0;
    }
    return json;
  };
  out["rope_parameters"] = {{"main", rope(c.main_rope)}, {"compress", rope(c.compress_rope)}};
  out["rope_theta"] = c.main_rope.theta;
  out["compress_rope_theta"] = c.compress_rope.theta;
  return out;
}

}  // namespace asterism::model
