#include "asterism/model/lora.h"

#include <gtest/gtest.h>

#include <set>

#include "asterism/core/error.h"
#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

std::set<std::string> leaves_of(const std::vector<std::string>& targets) {
  std::set<std::string> leaves;
  for (const std::string& path : match_targets(testing::tiny_config(), targets)) {
    const std::string prefix = "model.layers.";
    leaves.insert(path.substr(path.find('.', prefix.size()) + 1));
  }
  return leaves;
}

TEST(MatchTargets, GroupsHoldExactlyTheirMatrices) {
  EXPECT_EQ(leaves_of({"attention"}),
            (std::set<std::string>{"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_proj",
                                   "self_attn.o_a_proj", "self_attn.o_b_proj"}));
  EXPECT_EQ(leaves_of({"shared_experts"}),
            (std::set<std::string>{"mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
                                   "mlp.shared_experts.down_proj"}));
  EXPECT_EQ(leaves_of({"experts"}), (std::set<std::string>{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  EXPECT_EQ(match_targets(testing::tiny_config(), {"attention", "shared_experts", "experts"}).size(), 5u * 10u);
}

TEST(MatchTargets, APathNeverHitsItsNamesakesInCompressorAndIndexer) {
  EXPECT_EQ(leaves_of({"self_attn.kv_proj"}), (std::set<std::string>{"self_attn.kv_proj"}));
  EXPECT_EQ(leaves_of({"self_attn.q_b_proj"}), (std::set<std::string>{"self_attn.q_b_proj"}));
  EXPECT_EQ(leaves_of({"*.indexer.q_b_proj"}), (std::set<std::string>{"self_attn.compressor.indexer.q_b_proj"}));
  EXPECT_EQ(leaves_of({"mlp.gate"}), (std::set<std::string>{"mlp.gate"}));
  EXPECT_EQ(match_targets(testing::tiny_config(), {"model.layers.3.self_attn.q_a_proj"}).size(), 1u);
  EXPECT_EQ(match_targets(testing::tiny_config(), {"mtp.0.e_proj"}).size(), 1u);
}

TEST(MatchTargets, ATargetThatMatchesNothingIsAnErrorWithTheNearestName) {
  for (const auto& [target, near] : {std::pair{"atention", "attention"}, {"self_attn.q_a_pro", "self_attn.q_a_proj"}}) {
    try {
      match_targets(testing::tiny_config(), {"experts", target});
      FAIL() << target;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(near), std::string::npos) << error.what();
    }
  }
}

TEST(AttachLora, StartsAsTheBaseModelAndDependsOnSeedAndPathOnly) {
  Model model = testing::tiny_model(at::kFloat), base = testing::tiny_model(at::kFloat);
  LoraConfig lora;
  lora.rank = 3;
  lora.alpha = 6;
  attach_lora(model.config, model.weights, lora, 5);
  const TokenBatch batch = testing::tiny_batch(model.config, {17});
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(forward_logits(model, batch, {}), forward_logits(base, batch, {})));

  Model fewer = testing::tiny_model(at::kFloat);
  lora.targets = {"experts"};
  attach_lora(fewer.config, fewer.weights, lora, 5);
  const auto& pair = *model.weights.layers[2].moe.moe.down.lora;
  EXPECT_TRUE(at::equal(pair.a_RK, fewer.weights.layers[2].moe.moe.down.lora->a_RK));
  EXPECT_EQ(pair.scale, 2.0);
  EXPECT_EQ(pair.a_RK.sizes(), (std::vector<int64_t>{6 * 3, 16}));
  EXPECT_EQ(pair.b_NR.sizes(), (std::vector<int64_t>{32, 3 * 6}));
  const double bound = 1.0 / 4.0;  // 1 / sqrt(in)
  EXPECT_LE(pair.a_RK.abs().max().item<double>(), bound);
  EXPECT_GT(pair.a_RK.abs().max().item<double>(), 0.9 * bound);
  EXPECT_FALSE(model.weights.layers[2].moe.moe.gate.lora.has_value());
}

TEST(MatchModules, ANameStandsForAllTensorsOfTheModulesItEnds) {
  const auto names_of = [](const std::vector<std::string>& modules) {
    std::set<std::string> names;
    for (const TensorSpec& spec : match_modules(testing::tiny_config(), modules)) names.insert(spec.name);
    return names;
  };
  EXPECT_EQ(names_of({"lm_head"}), (std::set<std::string>{"lm_head.weight"}));
  EXPECT_EQ(names_of({"model.norm"}), (std::set<std::string>{"model.norm.weight"}));
  EXPECT_EQ(names_of({"layers.1.attn_hc"}),
            (std::set<std::string>{"model.layers.1.attn_hc.base", "model.layers.1.attn_hc.fn",
                                   "model.layers.1.attn_hc.scale"}));
  const auto gates = names_of({"mlp.gate"});
  EXPECT_TRUE(gates.contains("model.layers.0.mlp.gate.tid2eid"));
  EXPECT_TRUE(gates.contains("model.layers.4.mlp.gate.e_score_correction_bias"));
  for (const std::string& name : gates) EXPECT_NE(name.rfind("mtp.", 0), 0u) << name;
  EXPECT_FALSE(names_of({"mtp.0.mlp.gate"}).empty());
  for (const char* wrong : {"gate_pro", "head", "lm_head.weight", ""}) {
    EXPECT_THROW(match_modules(testing::tiny_config(), {wrong}), InputError) << wrong;
  }
}

TEST(LoraShapes, CountTheAdapterOfTheFlashExperts) {
  // TC24: rank 8 on gate_up and down of 256 experts in 43 layers.
  int64_t numbers = 0;
  for (const TensorSpec& spec : {TensorSpec{"gate_up_proj", {256, 2 * 2048, 4096}, TensorRole::kMatrix},
                                 TensorSpec{"down_proj", {256, 4096, 2048}, TensorRole::kMatrix}}) {
    const LoraShapes shapes = lora_shapes(spec, 8);
    numbers += 43 * (shapes.a[0] * shapes.a[1] + shapes.b[0] * shapes.b[1]);
  }
  EXPECT_EQ(numbers, 1262485504);
}

TEST(LoraScale, RankStabilisedDividesByTheRoot) {
  LoraConfig lora;
  lora.rank = 16;
  lora.alpha = 32;
  EXPECT_EQ(lora.scale(), 2.0);
  lora.rslora = true;
  EXPECT_EQ(lora.scale(), 8.0);
}

TEST(MergedWeight, GivesTheLogitsOfTheAdaptedModel) {
  // Every kind of target, packed experts and the grouped projection included, and the frozen ones by name.
  Model model = testing::tiny_model(at::kDouble);
  LoraConfig lora;
  lora.rank = 2;
  lora.targets = {"attention", "shared_experts", "experts", "mlp.gate", "*.compressor.kv_proj", "*.indexer.*"};
  attach_lora(model.config, model.weights, lora, 1);
  int64_t number = 0;
  for_each_projection(model.config, model.weights, [&](const TensorSpec&, Projection& projection) {
    if (!projection.lora) return;
    projection.lora->b_NR = testing::random_tensor(projection.lora->b_NR.sizes(), "b" + std::to_string(++number), 0.3);
  });
  Model merged = model;
  for_each_projection(model.config, merged.weights, [](const TensorSpec&, Projection& projection) {
    projection.weight = merged_weight(projection);
    projection.lora.reset();
  });
  const TokenBatch batch = testing::tiny_batch(model.config, {17, 5});
  ForwardOptions options;
  options.compute = at::kDouble;
  const at::NoGradGuard no_grad;
  EXPECT_LE(testing::relative_difference(forward_logits(model, batch, options), forward_logits(merged, batch, options)),
            1e-10);
}

}  // namespace
}  // namespace asterism::model
