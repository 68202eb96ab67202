// A model whose frozen matrices are packed is the model of their decoded values: loss, logits, gradients of the LoRA
// pairs, trajectory, generation.

#include <gtest/gtest.h>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/model/lora.h"
#include "asterism/train/generate.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/step.h"
#include "tests/parity/golden.h"
#include "tests/support/gradients.h"
#include "tests/support/packed_weights.h"
#include "tests/support/tiny_model.h"

namespace asterism::testing {
namespace {

// With LoRA on every group; pairs away from their start, so that all of them have gradients.
model::Model packed_model() {
  auto json = tiny_config_json();
  json["moe_intermediate_size"] = 32;
  model::Model model = tiny_model(model::parse_config(json, "packed"), at::kFloat);
  pack_model(model);
  model::attach_lora(model.config, model.weights, {.rank = 2}, 5);
  model::for_each_projection(model.config, model.weights, [](const model::TensorSpec& spec, model::Projection& p) {
    if (p.lora) p.lora->b_NR = random_tensor(p.lora->b_NR.sizes(), spec.name, 0.1).to(at::kFloat);
  });
  return model;
}

model::Model decoded_model() {
  model::Model model = packed_model();
  unpack_model(model);
  return model;
}

// Loss, then the gradients of all LoRA matrices.
std::vector<at::Tensor> loss_and_gradients(model::Model model, model::Recompute recompute, at::ScalarType compute) {
  const auto parameters = train::lora_parameters(model);
  const model::TokenBatch batch = tiny_batch(model.config, {23, 9});
  model::ForwardOptions options;
  options.compute = compute;
  const bool mtp = model.config.num_mtp_layers > 0;
  const model::LossSums sums = model::forward_loss(model, batch, options, {.recompute = recompute, .mtp = mtp});
  (mtp ? sums.token_loss + sums.mtp_loss : sums.token_loss).backward();
  std::vector<at::Tensor> results = {sums.token_loss.detach()};
  for (const auto& parameter : parameters) results.push_back(parameter.value.grad());
  return results;
}

TEST(PackedModel, LossAndGradientsAreThoseOfTheDecodedModel) {
  const auto found = loss_and_gradients(packed_model(), model::Recompute::kBlocks, at::kFloat);
  const auto expected = loss_and_gradients(decoded_model(), model::Recompute::kBlocks, at::kFloat);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(found[i].defined()) << i;
    EXPECT_LE(relative_difference(found[i], expected[i]), 2e-5) << "tensor " << i;
  }
}

TEST(PackedModel, RecomputationGivesTheSameBits) {
  const auto blocks = loss_and_gradients(packed_model(), model::Recompute::kBlocks, at::kFloat);
  const auto none = loss_and_gradients(packed_model(), model::Recompute::kNone, at::kFloat);
  for (size_t i = 0; i < blocks.size(); ++i) EXPECT_TRUE(at::equal(blocks[i], none[i])) << "tensor " << i;
}

TEST(PackedModel, BrainFloatStaysClose) {
  const auto found = loss_and_gradients(packed_model(), model::Recompute::kBlocks, at::kBFloat16);
  const auto expected = loss_and_gradients(decoded_model(), model::Recompute::kBlocks, at::kFloat);
  EXPECT_LE(relative_difference(found[0], expected[0]), 5e-3);
}

// Ten steps of AdamW on the pairs.
std::vector<double> trajectory(model::Model model) {
  const auto parameters = train::lora_parameters(model);
  train::OptimizerSection settings;
  train::AdamW optimizer(parameters, settings);
  std::vector<double> losses;
  for (int64_t k = 0; k < 10; ++k) {
    const model::TokenBatch batch = tiny_batch(model.config, {20}, 100 + static_cast<uint64_t>(k));
    const at::Tensor loss = model::forward_loss(model, batch, {}).token_loss / 19;
    loss.backward();
    losses.push_back(loss.item<double>());
    optimizer.step(1e-2, 1.0);
  }
  return losses;
}

TEST(PackedModel, TrainingFollowsTheDecodedModel) {
  const auto found = trajectory(packed_model()), expected = trajectory(decoded_model());
  for (size_t k = 0; k < found.size(); ++k) EXPECT_NEAR(found[k], expected[k], 2e-5 * expected[k]) << "step " << k;
}

TEST(PackedModel, GeneratesWhatTheDecodedModelGenerates) {
  const std::vector<int64_t> prompt = {5, 17, 3};
  train::GenerateOptions options;
  options.max_tokens = 6;
  const auto found = train::generate(packed_model(), prompt, options);
  const auto expected = train::generate(decoded_model(), prompt, options);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].id, expected[i].id);
    EXPECT_NEAR(found[i].log_probability, expected[i].log_probability, 1e-4);
  }
}

TEST(PackedModel, MergingAnAdapterDecodes) {
  model::Model packed = packed_model(), decoded = decoded_model();
  const auto& first = packed.weights.layers[1].moe.moe.down;
  const auto& second = decoded.weights.layers[1].moe.moe.down;
  EXPECT_TRUE(at::equal(model::merged_weight(first), model::merged_weight(second)));
}

TEST(PackedModel, FullFineTuningDecodesWhatItTrainsAndLeavesTheRest) {
  model::Model model = packed_model(), decoded = decoded_model();
  const auto parameters = train::full_parameters(model, {});
  const auto expected = train::full_parameters(decoded, {});
  ASSERT_EQ(parameters.size(), expected.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(parameters[i].name, expected[i].name);
    EXPECT_TRUE(parameters[i].value.requires_grad());
    EXPECT_TRUE(at::equal(parameters[i].value, expected[i].value)) << parameters[i].name;
  }
  const auto bytes = model::bytes_by_storage(model.config, model.weights);
  EXPECT_TRUE(model.weights.layers[1].attention.attention.indexer->q_b_proj.weight.packed.has_value());
  EXPECT_GT(bytes.at("fp8"), 0);
  EXPECT_GT(bytes.at("fp4"), 0);  // the experts of the MTP layer, which is not trained
  EXPECT_FALSE(model.weights.layers[1].moe.moe.down.weight.packed.has_value());
}

// 4.25 bits per FP4 parameter; FP8 matrices of this model are smaller than a block, which has one byte of scale.
TEST(PackedModel, TakesTheMemoryOfItsFormats) {
  const model::Model model = packed_model();
  int64_t fp4 = 0, fp8 = 0, rest = 0, tables = 0;
  model::for_each_weight(model.config, model.weights, [&](const model::TensorSpec& spec, const ops::Matrix& weight) {
    const int64_t count = c10::multiply_integers(spec.shape);
    if (!weight.packed) {
      (spec.role == model::TensorRole::kTable ? tables : rest) += count;
    } else if (spec.shape.size() == 3) {
      fp4 += count;
    } else {
      fp8 += count + 1;
    }
  });
  const auto bytes = model::bytes_by_storage(model.config, model.weights);
  EXPECT_EQ(bytes.at("fp4"), fp4 * 17 / 32);
  EXPECT_EQ(bytes.at("fp8"), fp8);
  EXPECT_EQ(bytes.at("fp32"), 4 * rest);
  EXPECT_EQ(bytes.at("int64"), 8 * tables);
}

// ---- the release's layout -------------------------------------------------------------------------------------------

class PackedNative : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_golden_file("native/codes.safetensors")) GTEST_SKIP() << "needs golden/native (ASTERISM_GOLDEN)";
  }
  model::Model load(bool packed) const {
    const auto folder = golden_file(std::string("native/") + GetParam() + "/config.json").parent_path();
    model::Model model;
    model.config = model::read_config(folder / "config.json");
    checkpoint::ReadOptions options;
    options.packed = packed;
    if (!packed) options.matrix_dtype = at::kFloat;
    checkpoint::LoadedWeights loaded = checkpoint::read_weights(folder, model.config, options);
    EXPECT_EQ(loaded.rounded.changed, 0);
    model.weights = std::move(loaded.weights);
    return model;
  }
};

TEST_P(PackedNative, LogitsAndLossComeFromThePackedWeights) {
  const GoldenFile golden(std::string("native/case_") + GetParam() + ".safetensors");
  const model::Model model = load(true);
  const auto bytes = model::bytes_by_storage(model.config, model.weights);
  EXPECT_EQ(bytes.contains("fp4"), std::string(GetParam()) == "instruct");
  EXPECT_GT(bytes.at("fp8"), 0);
  const model::TokenBatch batch = golden_batch(golden.tensor("input_ids"), golden.tensor("labels"));
  const at::NoGradGuard no_grad;
  const double loss = model::forward_loss(model, batch, {}).token_loss.item<double>();
  EXPECT_NEAR(loss, golden.scalar("loss_sum"), 2e-6 * golden.scalar("loss_sum"));
  const at::Tensor logits = model::forward_logits(model, batch, {});
  EXPECT_LE(relative_difference(logits, golden.tensor("logits").flatten(0, 1)), 1e-5);
}

TEST_P(PackedNative, WeightsAreThoseOfTheDecodedCheckpoint) {
  const model::Model packed = load(true), plain = load(false);
  std::map<std::string, at::Tensor> values;
  model::for_each_weight(plain.config, plain.weights,
                         [&](const model::TensorSpec& spec, const ops::Matrix& w) { values[spec.name] = w.plain; });
  int64_t codes = 0;
  model::for_each_weight(packed.config, packed.weights, [&](const model::TensorSpec& spec, const ops::Matrix& w) {
    const at::Tensor& want = values.at(spec.name);
    EXPECT_TRUE(at::equal(w.to(want.scalar_type()), want)) << spec.name;
    codes += w.packed.has_value();
  });
  EXPECT_GT(codes, 20);
}

TEST_P(PackedNative, FirstGradientsOfAnAdapterAreThoseOfTheDecodedModel) {
  std::vector<std::vector<at::Tensor>> results;
  for (const bool packed : {true, false}) {
    model::Model model = load(packed);
    model::attach_lora(model.config, model.weights, {.rank = 2}, 5);
    model::for_each_projection(model.config, model.weights, [](const model::TensorSpec& spec, model::Projection& p) {
      if (p.lora) p.lora->b_NR = random_tensor(p.lora->b_NR.sizes(), spec.name, 0.01).to(at::kFloat);
    });
    results.push_back(loss_and_gradients(model, model::Recompute::kBlocks, at::kFloat));
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i) {
    EXPECT_LE(relative_difference(results[0][i], results[1][i]), 1e-4) << "tensor " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PackedNative, ::testing::Values("instruct", "base"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace asterism::testing
