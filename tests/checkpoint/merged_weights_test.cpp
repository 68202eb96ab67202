#include "asterism/checkpoint/merged_weights.h"

#include <gtest/gtest.h>

#include "tests/checkpoint/merge_files.h"

namespace asterism::checkpoint {
namespace {

using namespace merge_files;
using asterism::testing::TemporaryFolder;
using asterism::testing::write_conversion_source;

// PEFT's layout of experts: rows e * r .. of A belong to expert e, columns e, e + E, .. of B.
TEST(MergedWeights, ExpertsTakeTheirRowsOfAAndTheirColumnsOfB) {
  const model::Projection projection{.weight = at::zeros({4, 1, 1}),
                                     .lora = ops::LoraPair{.a_RK = at::arange(1, 9, at::kFloat).view({8, 1}),
                                                           .b_NR = at::arange(10, 90, 10, at::kFloat).view({1, 8}),
                                                           .scale = 1.0}};
  EXPECT_TRUE(at::equal(merged_values(projection).flatten(), at::tensor({110.0F, 300.0F, 570.0F, 920.0F})));
}

TEST(MergedWeights, TheUpdateIsScaledAndTheWeightLeftAlone) {
  const at::Tensor weight = at::ones({2, 2});
  const model::Projection projection{
      .weight = weight,
      .lora = ops::LoraPair{
          .a_RK = at::tensor({1.0F, 2.0F}).view({1, 2}), .b_NR = at::tensor({3.0F, 4.0F}).view({2, 1}), .scale = 0.5}};
  EXPECT_TRUE(at::equal(merged_values(projection), at::tensor({2.5F, 4.0F, 3.0F, 5.0F}).view({2, 2})));
  const model::Projection bare{.weight = weight, .lora = std::nullopt};
  merged_values(bare).add_(1.0);
  EXPECT_TRUE(at::equal(weight, at::ones({2, 2})));
}

TEST(MergedWeights, UnroundedMergeTakesSmallMatricesFirst) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, released_base());
  const Names names = matrices({"self_attn.kv_proj.weight", "mlp.experts.down_proj"}, {0, 1});
  write_pairs(folder / "adapter", config, pairs_of_size(config, names, 1.0));
  auto weights = read_weights(folder / "base", config, {.packed = true}).weights;
  load_adapter(folder / "adapter", config, weights);
  const uint64_t small = 48 * 160 * 4, large = 3 * 160 * 160 * 4;
  model::Weights one = weights;
  EXPECT_EQ(merge_unrounded(config, one, small - 1), 0);
  EXPECT_EQ(merge_unrounded(config, one, small), 1);
  EXPECT_FALSE(one.layers[0].attention.attention.kv_proj.lora);
  EXPECT_EQ(one.layers[0].attention.attention.kv_proj.weight.plain.scalar_type(), at::kFloat);
  EXPECT_TRUE(one.layers[1].attention.attention.kv_proj.lora);
  model::Weights three = weights;
  EXPECT_EQ(merge_unrounded(config, three, 2 * small + large), 3);
  EXPECT_TRUE(three.layers[1].moe.moe.down.lora);
  EXPECT_TRUE(weights.layers[0].attention.attention.kv_proj.lora) << "a copy was merged";
  EXPECT_TRUE(at::equal(three.layers[0].moe.moe.down.weight.plain, merged_values(weights.layers[0].moe.moe.down)));
}

// Rounded in memory, weights are what loading them from files in those forms gives: values and how they are held.
TEST(MergedWeights, RoundedWeightsAreHeldAsLoadedOnes) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 1, {});
  convert_checkpoint(
      folder / "base", folder / "released",
      {.spelling = Spelling::kNative, .storage = {.experts = Form::fp4(), .dense = Form::fp8(at::kFloat)}}, 2);
  auto weights = read_weights(folder / "base", config, {.packed = true}).weights;
  merge_rounded(config, weights, stored_forms(folder / "released", config));
  const auto loaded = read_weights(folder / "released", config, {.packed = true}).weights;
  std::map<std::string, ops::Matrix> expected;
  model::for_each_weight(
      config, loaded, [&](const model::TensorSpec& spec, const ops::Matrix& weight) { expected[spec.name] = weight; });
  model::for_each_weight(config, weights, [&](const model::TensorSpec& spec, const ops::Matrix& weight) {
    const ops::Matrix& other = expected.at(spec.name);
    EXPECT_EQ(weight.storage(), other.storage()) << spec.name;
    if (spec.role == model::TensorRole::kTable) return;
    EXPECT_TRUE(at::equal(weight.to(at::kFloat), other.to(at::kFloat))) << spec.name;
  });
}

}  // namespace
}  // namespace asterism::checkpoint
