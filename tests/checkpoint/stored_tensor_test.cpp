#include "asterism/checkpoint/stored_tensor.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::error_of;
using asterism::testing::TemporaryFolder;

constexpr const char* kPrefix = "layers.0.attn.";

at::Tensor bytes(at::IntArrayRef shape, at::ScalarType type, int64_t value = 0x38) {
  return at::full(shape, value, at::kByte).view(type);
}

class StoredTensors : public ::testing::Test {
 protected:
  void add(const std::string& name, const at::Tensor& tensor) { tensors_.push_back({kPrefix + name, tensor}); }

  Source source() const {
    write_safetensors(folder_ / "model.safetensors", tensors_);
    return Source::open(folder_.path());
  }

  /// The only tensor, which must be free of problems.
  StoredTensor single() const {
    ProblemList problems;
    const auto found = stored_tensors(source(), problems);
    problems.throw_if_any("test", "");
    EXPECT_EQ(found.size(), 1U);
    return found.at(0);
  }

  std::string problem() const {
    ProblemList problems;
    stored_tensors(source(), problems);
    return error_of<InputError>([&] { problems.throw_if_any("test", "hint"); });
  }

  at::Tensor values(at::ScalarType type = at::kFloat) const {
    const Source opened = source();
    const StoredTensor tensor = single();
    const at::Tensor out = at::empty(tensor.shape, type);
    decode_into(stored_matrix(opened, tensor), out);
    return out;
  }

 private:
  TemporaryFolder folder_;
  std::vector<NamedTensor> tensors_;
};

TEST_F(StoredTensors, Fp8HasOneScalePerBlockInEitherType) {
  add("wq_b.weight", bytes({256, 128}, at::kFloat8_e4m3fn));
  add("wq_b.scale", at::tensor({2.0F, 4.0F}).view({2, 1}));
  EXPECT_EQ(single().form, Form::fp8(at::kFloat));
  EXPECT_TRUE(at::equal(values().narrow(0, 0, 128), at::full({128, 128}, 2.0F)));
  EXPECT_TRUE(at::equal(values().narrow(0, 128, 128), at::full({128, 128}, 4.0F)));
  EXPECT_EQ(exact_dtype(single().form), at::kFloat);
}

TEST_F(StoredTensors, ScalesOfHuggingFaceHaveAnotherName) {
  add("wq_b.weight", bytes({130, 128}, at::kFloat8_e4m3fn));
  add("wq_b.weight_scale_inv", bytes({2, 1}, at::kFloat8_e8m0fnu, 128));
  EXPECT_EQ(single().form, Form::fp8());
  EXPECT_TRUE(at::equal(values(at::kBFloat16), at::full({130, 128}, 2.0F).to(at::kBFloat16)));
  EXPECT_EQ(exact_dtype(single().form), at::kBFloat16);
}

TEST_F(StoredTensors, BytesWithScalesPer32ColumnsAreFp4) {
  for (const auto type : {at::kChar, at::kByte}) {
    const TemporaryFolder folder;
    write_safetensors(folder / "model.safetensors",
                      {{"layers.0.ffn.experts.0.w1.weight", bytes({3, 32}, type, 0x72)},
                       {"layers.0.ffn.experts.0.w1.scale", bytes({3, 2}, at::kFloat8_e8m0fnu, 128)}});
    const Source opened = Source::open(folder.path());
    ProblemList problems;
    const auto found = stored_tensors(opened, problems);
    ASSERT_TRUE(problems.empty());
    EXPECT_EQ(found.at(0).form, Form::fp4());
    EXPECT_EQ(found.at(0).shape, (std::vector<int64_t>{3, 64}));
    const at::Tensor out = at::empty({3, 64});
    decode_into(stored_matrix(opened, found.at(0)), out);
    EXPECT_TRUE(at::equal(out, at::tensor({2.0F, 12.0F}).repeat({3, 32})));
  }
}

// The same tensor of bytes is FP8 when its scales say so: nothing is concluded from the name of an expert.
TEST_F(StoredTensors, BytesWithScalesPerBlockAreFp8) {
  add("wq_b.weight", bytes({256, 64}, at::kByte));
  add("wq_b.scale", bytes({2, 1}, at::kByte, 127));
  EXPECT_EQ(single().form, Form::fp8());
  EXPECT_EQ(single().shape, (std::vector<int64_t>{256, 64}));
  EXPECT_TRUE(at::equal(values(), at::ones({256, 64})));
}

TEST_F(StoredTensors, PackedExpertsHaveBlocksOfTheirOwn) {
  // Two experts of gate and up with 130 rows each: a block ends with its matrix.
  at::Tensor scale = at::full({2, 4, 1}, 127, at::kByte);
  scale[1][2][0] = 129;
  const TemporaryFolder folder;
  write_safetensors(folder / "model.safetensors",
                    {{"model.layers.0.mlp.experts.gate_up_proj", bytes({2, 260, 64}, at::kFloat8_e4m3fn)},
                     {"model.layers.0.mlp.experts.gate_up_proj_scale_inv", scale.view(at::kFloat8_e8m0fnu)}});
  const Source opened = Source::open(folder.path());
  ProblemList problems;
  const auto found = stored_tensors(opened, problems);
  problems.throw_if_any("test", "");
  const at::Tensor up = at::empty({130, 64});
  decode_into(stored_matrix(opened, found.at(0)).part(1, 1, 2), up);
  EXPECT_TRUE(at::equal(up.narrow(0, 0, 128), at::full({128, 64}, 4.0F)));
  EXPECT_TRUE(at::equal(up.narrow(0, 128, 2), at::ones({2, 64})));
}

TEST_F(StoredTensors, NamesOfScaleParametersAreTensors) {
  const TemporaryFolder folder;
  write_safetensors(folder / "model.safetensors", {{"model.layers.0.attn_hc.scale", at::ones({3})}});
  ProblemList problems;
  const auto found = stored_tensors(Source::open(folder.path()), problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(found.at(0).name, "model.layers.0.attn_hc.scale");
}

TEST_F(StoredTensors, AWeightWithoutScalesIsAFinding) {
  add("wq_b.weight", bytes({4, 4}, at::kFloat8_e4m3fn));
  add("wkv.weight", bytes({4, 32}, at::kChar));
  const std::string message = problem();
  EXPECT_NE(message.find("wq_b.weight (F8_E4M3)"), std::string::npos) << message;
  EXPECT_NE(message.find("wkv.weight (I8)"), std::string::npos) << message;
}

TEST_F(StoredTensors, AScaleWithoutAWeightIsAFinding) {
  add("wq_b.scale", at::ones({1, 1}));
  EXPECT_NE(problem().find("wq_b.scale (expected layers.0.attn.wq_b.weight)"), std::string::npos);
}

TEST_F(StoredTensors, InFilesOfOtherThingsNothingIsMissing) {
  add("counts", bytes({4, 4}, at::kByte));
  add("my.scale", at::ones({1, 1}));
  ProblemList problems;
  EXPECT_EQ(stored_tensors(source(), problems).size(), 2U);
  EXPECT_TRUE(problems.empty());
}

TEST_F(StoredTensors, AScaleOfAPlainWeightIsAFinding) {
  add("wq_b.weight", at::ones({4, 4}));
  add("wq_b.scale", at::ones({1, 1}));
  EXPECT_NE(problem().find("wq_b.scale (layers.0.attn.wq_b.weight is F32)"), std::string::npos);
}

TEST_F(StoredTensors, AScalePerTensorIsAFinding) {
  add("wq_b.weight", bytes({256, 256}, at::kFloat8_e4m3fn));
  add("wq_b.scale", at::ones({1, 1}));
  const std::string message = problem();
  EXPECT_NE(message.find("expected [2, 2] (FP8, 128 x 128 blocks) for [256, 256], found F32 [1, 1]"), std::string::npos)
      << message;
}

TEST_F(StoredTensors, AScaleOfAnotherTypeIsAFinding) {
  add("wq_b.weight", bytes({4, 4}, at::kFloat8_e4m3fn));
  add("wq_b.scale", at::ones({1, 1}, at::kHalf));
  EXPECT_NE(problem().find("expected F8_E8M0, F32 or U8, found F16"), std::string::npos);
}

TEST_F(StoredTensors, TwoScalesOfOneWeightAreAFinding) {
  add("wq_b.weight", bytes({4, 4}, at::kFloat8_e4m3fn));
  add("wq_b.scale", at::ones({1, 1}));
  add("wq_b.weight_scale_inv", at::ones({1, 1}));
  EXPECT_NE(problem().find("wq_b.scale and layers.0.attn.wq_b.weight_scale_inv"), std::string::npos);
}

}  // namespace
}  // namespace asterism::checkpoint
