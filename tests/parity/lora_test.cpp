// A PEFT adapter on every kind of target: gradients of every A and B, and the merged weights, against peft.

#include <gtest/gtest.h>

#include "asterism/checkpoint/adapter_merge.h"
#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/train/parameters.h"
#include "tests/parity/golden.h"
#include "tests/support/gradients.h"
#include "tests/support/temporary_folder.h"

namespace asterism::testing {
namespace {

std::vector<std::string> adapted_configs() {
  std::vector<std::string> configs;
  for (const std::string& config : golden_configs("hf")) {
    if (has_golden_file("hf/" + config + "/lora/case.safetensors")) configs.push_back(config);
  }
  return configs;
}

class LoraCase : public ::testing::TestWithParam<std::string> {
 protected:
  model::Model adapted() const {
    model::Model model = golden_model(GetParam(), at::kFloat);
    checkpoint::load_adapter(folder(), model.config, model.weights);
    return model;
  }
  std::filesystem::path folder() const {
    return golden_file("hf/" + GetParam() + "/lora/adapter_model.safetensors").parent_path();
  }
};

TEST_P(LoraCase, LogitsLossAndGradientsOfTheAdapter) {
  const GoldenFile golden("hf/" + GetParam() + "/lora/case.safetensors");
  model::Model model = adapted();
  const auto parameters = train::lora_parameters(model);
  const model::TokenBatch batch = golden_batch(golden.tensor("input_ids"), golden.tensor("labels"));
  const model::LossSums sums = model::forward_loss(model, batch, {});
  const double want = golden.scalar("loss_sum");
  EXPECT_NEAR(sums.token_loss.item<double>(), want, 2e-6 * want);
  sums.token_loss.backward();
  const auto names = checkpoint::adapter_tensor_names(model.config, model.weights);
  int64_t compared = 0;
  for (const auto& parameter : parameters) {
    const std::string& stored = names.at(parameter.name);
    ASSERT_TRUE(golden.has("grad." + stored)) << stored;
    ASSERT_TRUE(parameter.value.grad().defined()) << parameter.name;
    EXPECT_LE(relative_difference(parameter.value.grad(), golden.tensor("grad." + stored)), 2e-5) << stored;
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int64_t>(golden.below("grad.").size()));
  const at::NoGradGuard no_grad;
  EXPECT_LE(relative_difference(model::forward_logits(model, batch, {}), golden.tensor("logits").flatten(0, 1)), 1e-5);
}

TEST_P(LoraCase, MergedWeightsEqualPeft) {
  const GoldenFile golden("hf/" + GetParam() + "/lora/merged.safetensors");
  model::Model model = adapted();
  int64_t compared = 0;
  const at::NoGradGuard no_grad;
  model::for_each_projection(
      model.config, model.weights, [&](const model::TensorSpec& spec, model::Projection& projection) {
        if (!projection.lora) return;
        const at::Tensor merged = model::merged_weight(projection);
        if (golden.has("fingerprint." + spec.name)) {
          EXPECT_LE(relative_difference(fingerprint(merged), golden.tensor("fingerprint." + spec.name)), 1e-5)
              << spec.name;
          ++compared;
        }
        if (golden.has(spec.name)) {
          EXPECT_LE(relative_difference(merged, golden.tensor(spec.name)), 1e-6) << spec.name;
        }
      });
  EXPECT_EQ(compared, static_cast<int64_t>(golden.below("fingerprint.").size()));
}

// The checkpoint that export writes, loaded alone: the logits of PEFT's merged model, and its weights.
TEST_P(LoraCase, MergedCheckpointGivesTheLogitsOfPeft) {
  const GoldenFile golden("hf/" + GetParam() + "/lora/merged.safetensors");
  const GoldenFile inputs("hf/" + GetParam() + "/lora/case.safetensors");
  const std::filesystem::path base = golden_file("hf/" + GetParam() + "/config.json").parent_path();
  const TemporaryFolder target;
  const auto config = model::read_config(base / "config.json");
  for (const checkpoint::Spelling spelling : {checkpoint::Spelling::kModule, checkpoint::Spelling::kNative}) {
    const std::filesystem::path merged = target / std::to_string(static_cast<int>(spelling));
    checkpoint::convert_checkpoint(
        base, merged,
        {.spelling = spelling, .edit = std::make_shared<const checkpoint::AdapterMerge>(folder(), config)}, 2);
    model::Model model{.config = model::read_config(merged / "config.json"), .weights = {}};
    model.weights = checkpoint::read_weights(merged, model.config).weights;
    const at::NoGradGuard no_grad;
    const model::TokenBatch batch = golden_batch(inputs.tensor("input_ids"), inputs.tensor("labels"));
    EXPECT_LE(relative_difference(model::forward_logits(model, batch, {}), golden.tensor("logits").flatten(0, 1)),
              1e-5);
    int64_t compared = 0;
    model::for_each_tensor(model.config, model.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
      if (!golden.has(spec.name)) return;
      EXPECT_LE(relative_difference(tensor, golden.tensor(spec.name)), 1e-6) << spec.name;
      ++compared;
    });
    EXPECT_GT(compared, 5);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LoraCase, ::testing::ValuesIn(adapted_configs()),
                         [](const auto& info) { return info.param; });

TEST(LoraCases, AreThere) {
  EXPECT_FALSE(adapted_configs().empty());
}

}  // namespace
}  // namespace asterism::testing
