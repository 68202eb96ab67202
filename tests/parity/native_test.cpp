// A small checkpoint in the layout of the native release: decoded values, logits and loss.

#include <gtest/gtest.h>

#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/names.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/ops/dequant.h"
#include "tests/parity/golden.h"
#include "tests/support/gradients.h"
#include "tests/support/temporary_folder.h"

namespace asterism::testing {
namespace {

namespace fs = std::filesystem;

class NativeGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!has_golden_file("native/codes.safetensors")) GTEST_SKIP() << "needs golden/native (ASTERISM_GOLDEN)";
  }
  std::string kind() const { return GetParam(); }
  fs::path folder() const { return golden_file("native/" + kind() + "/config.json").parent_path(); }

  model::Model load(std::optional<at::ScalarType> type) const {
    model::Model model;
    model.config = model::read_config(folder() / "config.json");
    model.weights = checkpoint::read_weights(folder(), model.config, {.matrix_dtype = type}).weights;
    return model;
  }
};

at::Tensor part_of(const at::Tensor& packed, const checkpoint::ExpertPart& part) {
  using Matrix = checkpoint::ExpertPart::Matrix;
  if (part.matrix == Matrix::kDown) return packed[part.expert];
  const int64_t rows = packed.size(1) / 2;
  return packed[part.expert].narrow(0, part.matrix == Matrix::kUp ? rows : 0, rows);
}

TEST_P(NativeGolden, EveryTensorDecodesBitForBit) {
  const GoldenFile expected("native/expected_" + kind() + ".safetensors");
  model::Model model = load(at::kFloat);
  std::map<std::string, at::Tensor> tensors;
  model::for_each_tensor(model.config, model.weights,
                         [&](const model::TensorSpec& spec, at::Tensor& tensor) { tensors[spec.name] = tensor; });
  int64_t compared = 0;
  for (const std::string& name : expected.below("")) {
    const auto canonical = checkpoint::canonical_name(name);
    ASSERT_TRUE(canonical) << name;
    const at::Tensor whole = tensors.at(canonical->tensor);
    const at::Tensor got = canonical->part ? part_of(whole, *canonical->part) : whole;
    const at::Tensor want = expected.tensor(name).to(got.scalar_type());
    ASSERT_TRUE(at::equal(got, want)) << name;
    ASSERT_TRUE(at::equal(got.signbit(), want.signbit())) << name;
    ++compared;
  }
  EXPECT_EQ(compared, kind() == "instruct" ? 229 : 53);
}

TEST_P(NativeGolden, LogitsAndLossAgree) {
  const GoldenFile golden("native/case_" + kind() + ".safetensors");
  const model::Model model = load(at::kFloat);
  const model::TokenBatch batch = golden_batch(golden.tensor("input_ids"), golden.tensor("labels"));
  const at::NoGradGuard no_grad;
  const double loss = model::forward_loss(model, batch, {}).token_loss.item<double>();
  EXPECT_EQ(batch.trained_tokens(), static_cast<int64_t>(golden.scalar("trained_tokens")));
  EXPECT_NEAR(loss, golden.scalar("loss_sum"), 2e-6 * golden.scalar("loss_sum"));
  const at::Tensor logits = model::forward_logits(model, batch, {});
  EXPECT_LE(relative_difference(logits, golden.tensor("logits").flatten(0, 1)), 1e-5);
}

// Without a wish, matrices come in the narrowest type that holds every value.
TEST_P(NativeGolden, TheDefaultTypeLosesNothing) {
  model::Model stored = load({}), exact = load(at::kFloat);
  std::map<std::string, at::Tensor> values;
  model::for_each_tensor(exact.config, exact.weights,
                         [&](const model::TensorSpec& spec, at::Tensor& tensor) { values[spec.name] = tensor; });
  model::for_each_tensor(stored.config, stored.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    EXPECT_TRUE(at::equal(tensor.to(values[spec.name].scalar_type()), values[spec.name])) << spec.name;
    if (!spec.name.ends_with("experts.down_proj")) return;
    EXPECT_EQ(tensor.scalar_type(), kind() == "instruct" ? at::kBFloat16 : at::kFloat);
  });
}

TEST_P(NativeGolden, WhatWasDetectedIsAnnounced) {
  const model::Config config = model::read_config(folder() / "config.json");
  const std::string note = checkpoint::read_weights(folder(), config).notes.at(0);
  const bool instruct = kind() == "instruct";
  EXPECT_NE(note.find("DeepSeek's names; expert matrices: "), std::string::npos) << note;
  EXPECT_NE(note.find(instruct ? "expert matrices: FP4 x 90" : "expert matrices: FP8 (F32 scales) x 90"),
            std::string::npos)
      << note;
  EXPECT_NE(note.find(instruct ? ", FP8 x 42" : ", FP8 (F32 scales) x 42"), std::string::npos) << note;
}

std::map<std::string, at::Tensor> values_in(const fs::path& folder) {
  const model::Config config = model::read_config(folder / "config.json");
  auto weights = checkpoint::read_weights(folder, config, {.matrix_dtype = at::kFloat}).weights;
  std::map<std::string, at::Tensor> values;
  model::for_each_tensor(config, weights,
                         [&](const model::TensorSpec& spec, at::Tensor& tensor) { values[spec.name] = tensor; });
  return values;
}

// Out of the release's storage into plain values, and back: every value is the same, to the last bit.
TEST_P(NativeGolden, ReencodingGivesTheValuesBack) {
  using checkpoint::Form;
  const bool instruct = kind() == "instruct";
  const Form plain = Form::plain(instruct ? at::kBFloat16 : at::kFloat);
  const Form fp8 = Form::fp8(instruct ? at::kFloat8_e8m0fnu : at::kFloat);
  const TemporaryFolder temporary;
  const auto there =
      checkpoint::convert_checkpoint(folder(), temporary / "plain", {.storage = {.experts = plain, .dense = plain}}, 2);
  const auto back = checkpoint::convert_checkpoint(
      temporary / "plain", temporary / "native",
      {.spelling = checkpoint::Spelling::kNative, .storage = {.experts = instruct ? Form::fp4() : fp8, .dense = fp8}},
      2);
  for (const auto& report : {there, back}) {
    for (const auto& entry : report.classes) EXPECT_EQ(entry.loss.changed, 0) << entry.from << " -> " << entry.to;
  }
  const auto before = values_in(folder()), after = values_in(temporary / "native");
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
  // Where the scale is determined, the bytes are the same too.
  const auto first = checkpoint::Source::open(folder()), second = checkpoint::Source::open(temporary / "native");
  int64_t scales = 0, same_scales = 0;
  for (const std::string& name : first.names()) {
    ASSERT_TRUE(second.contains(name)) << name;
    ASSERT_EQ(second.info(name).dtype, first.info(name).dtype) << name;
    ASSERT_EQ(second.info(name).shape, first.info(name).shape) << name;
    if (!name.ends_with(".scale")) continue;
    const at::Tensor x = first.tensor(name).view(at::kByte), y = second.tensor(name).view(at::kByte);
    scales += x.numel();
    same_scales += x.eq(y).sum().item<int64_t>();
    // Another scale than the first one is half of it or less, never more.
    EXPECT_FALSE(instruct && y.gt(x).logical_and(x.gt(1)).any().item<bool>()) << name;
  }
  EXPECT_GT(same_scales, scales / 2);
}

// FP4 as FP8 is exact; the logits of the two are the same.
TEST_P(NativeGolden, Fp4AsFp8IsTheSameModel) {
  if (kind() != "instruct") return;
  const TemporaryFolder temporary;
  checkpoint::convert_checkpoint(
      folder(), temporary / "fp8",
      {.spelling = checkpoint::Spelling::kNative, .storage = {.experts = checkpoint::Form::fp8()}}, 2);
  const auto before = values_in(folder()), after = values_in(temporary / "fp8");
  for (const auto& [name, tensor] : before) EXPECT_TRUE(at::equal(after.at(name), tensor)) << name;
}

INSTANTIATE_TEST_SUITE_P(Native, NativeGolden, ::testing::Values("instruct", "base"),
                         [](const auto& info) { return info.param; });

TEST(NativeCodes, AllBytesHaveTheirValues) {
  if (!has_golden_file("native/codes.safetensors")) GTEST_SKIP() << "needs golden/native (ASTERISM_GOLDEN)";
  const GoldenFile golden("native/codes.safetensors");
  const at::Tensor byte = golden.tensor("byte");
  const auto same = [](const at::Tensor& got, const at::Tensor& want) {
    return at::allclose(got, want, 0.0, 0.0, /*equal_nan=*/true);
  };
  const at::Tensor unit = at::full({1, 1}, 127, at::kByte);
  const at::Tensor fp8 = ops::dequant_fp8(byte.view({2, 128}), unit, at::kFloat).flatten();
  EXPECT_TRUE(same(fp8, golden.tensor("e4m3")));
  const at::Tensor fp4 = ops::dequant_fp4(byte.view({16, 16}), at::full({16, 1}, 127, at::kByte), at::kFloat);
  EXPECT_TRUE(same(fp4.view({256, 2}).select(1, 0), golden.tensor("e2m1_low")));
  EXPECT_TRUE(same(fp4.view({256, 2}).select(1, 1), golden.tensor("e2m1_high")));
  const at::Tensor scales = byte.view({256, 1});
  const at::Tensor one = at::full({256 * 128, 1}, 0x38, at::kByte);
  const at::Tensor e8m0 = ops::dequant_fp8(one, scales, at::kFloat).view({256, 128}).select(1, 0);
  EXPECT_TRUE(same(e8m0, golden.tensor("e8m0")));
}

}  // namespace
}  // namespace asterism::testing
