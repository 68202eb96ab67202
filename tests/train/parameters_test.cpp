#include "asterism/train/parameters.h"

#include <gtest/gtest.h>

#include <set>

#include "asterism/core/error.h"
#include "asterism/model/lora.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

std::set<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::set<std::string> names;
  for (const Parameter& parameter : parameters) names.insert(parameter.name);
  return names;
}

TEST(FullParameters, LeaveOutWhatHasNoLossAndWhatIsNotTrained) {
  model::Model model = testing::tiny_model(at::kFloat);
  const auto names = names_of(full_parameters(model, {}));
  for (const std::string& name : names) {
    EXPECT_EQ(name.find(".indexer."), std::string::npos);
    EXPECT_NE(name.rfind("mtp.", 0), 0u);
    EXPECT_EQ(name.find("tid2eid"), std::string::npos);
    EXPECT_EQ(name.find("correction_bias"), std::string::npos);
  }
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.compressor.kv_proj.weight"));
  const auto more = names_of(full_parameters(model, {.indexer = true, .mtp = true}));
  EXPECT_TRUE(more.contains("model.layers.1.self_attn.compressor.indexer.q_b_proj.weight"));
  EXPECT_TRUE(more.contains("mtp.0.e_proj.weight"));
}

TEST(FullParameters, DecayMatricesOnly) {
  model::Model model = testing::tiny_model(at::kFloat);
  for (const Parameter& parameter : full_parameters(model, {})) {
    const bool bias = parameter.name.ends_with("position_bias");
    EXPECT_EQ(parameter.decays, parameter.value.dim() >= 2 && !bias) << parameter.name;
  }
}

TEST(FullParameters, BecomeFp32MastersThatTheModelUses) {
  model::Model model = testing::tiny_model(at::kFloat);
  model.weights.lm_head = model.weights.lm_head.to(at::kBFloat16);
  const auto parameters = full_parameters(model, {});
  EXPECT_EQ(model.weights.lm_head.scalar_type(), at::kFloat);
  for (const Parameter& parameter : parameters) {
    if (parameter.name == "lm_head.weight") {
      EXPECT_TRUE(parameter.value.is_same(model.weights.lm_head));
    }
  }
}

TEST(LoraParameters, TrainThePairsAndFreezeTheBase) {
  model::Model model = testing::tiny_model(at::kFloat);
  model::LoraConfig lora;
  lora.targets = {"experts"};
  model::attach_lora(model.config, model.weights, lora, 0);
  const auto parameters = lora_parameters(model);
  EXPECT_EQ(parameters.size(), 5u * 2u * 2u);
  EXPECT_FALSE(model.weights.lm_head.requires_grad());
  EXPECT_TRUE(names_of(parameters).contains("model.layers.3.mlp.experts.down_proj.lora_B.weight"));
  for (const Parameter& parameter : parameters) EXPECT_TRUE(parameter.decays);
}

TEST(LoraParameters, SavedModulesAreTrainedInFull) {
  model::Model model = testing::tiny_model(at::kFloat);
  model.weights.lm_head = model.weights.lm_head.to(at::kBFloat16);
  model::LoraConfig lora;
  lora.targets = {"self_attn.q_a_proj"};
  model::attach_lora(model.config, model.weights, lora, 0);
  const auto names = names_of(lora_parameters(model, {"lm_head", "mlp.gate"}));
  EXPECT_EQ(names.size(), 5u * 2u + 1u + 5u) << "no bias and no hash table";
  EXPECT_TRUE(names.contains("lm_head.weight"));
  EXPECT_TRUE(model.weights.lm_head.requires_grad());
  EXPECT_EQ(model.weights.lm_head.scalar_type(), at::kFloat);
  EXPECT_FALSE(model.weights.embed.requires_grad());
  EXPECT_THROW(lora_parameters(model, {"self_attn.q_a_proj"}), InputError) << "has pairs as well";
  EXPECT_THROW(lora_parameters(model, {"compressor.indexer"}), InputError) << "no loss";
  EXPECT_THROW(lora_parameters(model, {"mtp.0.e_proj"}), InputError) << "no loss";
  EXPECT_EQ(lora_parameters(model, {"mtp.0.e_proj"}, {.mtp = true}).size(), 11u);
}

}  // namespace
}  // namespace asterism::train
