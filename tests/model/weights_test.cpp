#include "asterism/model/weights.h"

#include <gtest/gtest.h>

#include <set>

#include "asterism/model/lora.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

int64_t elements(const Config& config) {
  int64_t total = 0;
  for (const TensorSpec& spec : tensor_specs(config)) {
    if (spec.role == TensorRole::kTable || spec.role == TensorRole::kRouterBias) continue;
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    total += count;
  }
  return total;
}

// The published sizes (model-spec 1.1): the counts of section 10.3 must come out to the last number.
Config flash() {
  nlohmann::ordered_json json = testing::tiny_config_json();
  nlohmann::ordered_json ratios = {0, 0};
  for (int i = 0; i < 20; ++i) {
    ratios.push_back(4);
    ratios.push_back(128);
  }
  ratios.push_back(4);
  ratios.push_back(0);
  json["compress_ratios"] = ratios;
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", 129280}, {"hidden_size", 4096},           {"num_hidden_layers", 43}, {"num_attention_heads", 64},
      {"head_dim", 512},      {"qk_rope_head_dim", 64},        {"q_lora_rank", 1024},     {"o_groups", 8},
      {"o_lora_rank", 1024},  {"moe_intermediate_size", 2048}, {"n_routed_experts", 256}, {"num_experts_per_tok", 6},
      {"num_hash_layers", 3}, {"sliding_window", 128},         {"index_n_heads", 64},     {"index_head_dim", 128},
      {"index_topk", 512}};
  for (const auto& [key, value] : sizes) json[key] = value;
  return parse_config(json, "flash");
}

TEST(TensorSpecs, CountThePublishedModelExactly) {
  Config config = flash();
  EXPECT_EQ(elements(config), 290942289362 - 41 * 256);  // router biases counted there: 40 layers and the MTP block
  config.num_mtp_layers = 0;
  EXPECT_EQ(elements(config), 284332240471 - 40 * 256);
}

TEST(TensorSpecs, NamesAreUniqueAndFollowTheLayerKinds) {
  const Config config = testing::tiny_config();
  std::set<std::string> names;
  for (const TensorSpec& spec : tensor_specs(config)) EXPECT_TRUE(names.insert(spec.name).second) << spec.name;
  EXPECT_TRUE(names.contains("model.layers.0.mlp.gate.tid2eid"));
  EXPECT_FALSE(names.contains("model.layers.0.mlp.gate.e_score_correction_bias"));
  EXPECT_FALSE(names.contains("model.layers.0.self_attn.compressor.kv_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.compressor.indexer.scorer.weights_proj.weight"));
  EXPECT_TRUE(names.contains("model.layers.2.self_attn.compressor.position_bias"));
  EXPECT_FALSE(names.contains("model.layers.2.self_attn.compressor.indexer.q_b_proj.weight"));
  EXPECT_TRUE(names.contains("mtp.0.mlp.gate.e_score_correction_bias"));
  EXPECT_TRUE(names.contains("mtp.0.hc_head.hc_fn"));
}

TEST(Slots, CoverEveryTensorAndTheLoraPairsOfAHalf) {
  Model model = testing::tiny_model(at::kFloat);
  LoraConfig lora;
  lora.rank = 2;
  attach_lora(model.config, model.weights, lora, 0);
  int64_t slots = 0;
  LayerWeights layer = model.weights.layers[1];
  const SlotVisitor count = [&](at::Tensor& slot) {
    EXPECT_TRUE(slot.defined());
    ++slots;
  };
  for_each_slot(model.config, model.config.layers[1], layer.attention, count);
  for_each_slot(model.config, model.config.layers[1], layer.moe, count);
  int64_t expected = 2 * (5 + 3 + 2);  // A and B of attention, shared and routed experts
  for (const TensorSpec& spec : tensor_specs(model.config)) expected += spec.name.rfind("model.layers.1.", 0) == 0;
  EXPECT_EQ(slots, expected);
}

}  // namespace
}  // namespace asterism::model
