#include "asterism/cli/tensor_set.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "asterism/checkpoint/safetensors.h"
#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using checkpoint::write_safetensors;
using testing::error_of;
using testing::TemporaryFolder;

at::Tensor values(const LazyTensor& tensor) {
  return tensor.rows(0, std::min(tensor.num_rows(), tensor.matrix_rows)).view(tensor.shape);
}

TEST(TensorSet, SpellingsOfOneTensorHaveOneName) {
  const TemporaryFolder folder;
  write_safetensors(folder / "module.safetensors",
                    {{"model.layers.0.self_attn.q_a_proj.weight", at::ones({2, 2}), {}}});
  write_safetensors(folder / "native.safetensors", {{"layers.0.attn.wq_a.weight", at::ones({2, 2}), {}}});
  const TensorSet a = open_tensors(folder / "module.safetensors"), b = open_tensors(folder / "native.safetensors");
  ASSERT_EQ(a.size(), 1u);
  ASSERT_EQ(b.size(), 1u);
  EXPECT_EQ(a.begin()->first, b.begin()->first);
}

TEST(TensorSet, PackedExpertsAreCutWhereTheOtherSideHasSingleOnes) {
  const TemporaryFolder folder;
  const std::string packed = "model.layers.0.mlp.experts.gate_up_proj";
  const at::Tensor gate_up = at::arange(24, at::kFloat).reshape({2, 4, 3});
  write_safetensors(folder / "packed.safetensors", {{packed, gate_up, {}}});
  std::vector<checkpoint::NamedTensor> parts;
  for (int64_t expert = 0; expert < 2; ++expert) {
    const std::string stem = text("layers.0.ffn.experts.", expert, ".");
    parts.push_back({stem + "w1.weight", gate_up[expert].narrow(0, 0, 2), {}});
    parts.push_back({stem + "w3.weight", gate_up[expert].narrow(0, 2, 2), {}});
  }
  write_safetensors(folder / "single.safetensors", parts);
  TensorSet a = open_tensors(folder / "packed.safetensors"), b = open_tensors(folder / "single.safetensors");
  align_experts(a, b);
  ASSERT_EQ(a.size(), 4u);
  ASSERT_EQ(b.size(), 4u);
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{2, 3}));
    EXPECT_TRUE(at::equal(values(tensor), values(b.at(name)))) << name;
  }
  EXPECT_TRUE(at::equal(values(a.at(packed + "[1].up")), gate_up[1].narrow(0, 2, 2)));
}

TEST(TensorSet, PackedExpertsOfBothSidesStayWhole) {
  const TemporaryFolder folder;
  const std::string packed = "model.layers.0.mlp.experts.down_proj";
  write_safetensors(folder / "a.safetensors", {{packed, at::ones({2, 4, 3}), {}}});
  TensorSet a = open_tensors(folder / "a.safetensors"), b = a;
  align_experts(a, b);
  EXPECT_TRUE(a.contains(packed));
}

TEST(TensorSet, ScalesBelongToTheirWeights) {
  const TemporaryFolder folder;
  const at::Tensor codes = at::full({256, 32}, 0x38, at::kByte).view(at::kFloat8_e4m3fn);
  write_safetensors(folder / "a.safetensors",
                    {{"layers.0.attn.wq_a.weight", codes, {}},
                     {"layers.0.attn.wq_a.scale", at::tensor({2.0F, 4.0F}).view({2, 1}), {}}});
  const TensorSet set = open_tensors(folder / "a.safetensors");
  ASSERT_EQ(set.size(), 1u);
  const LazyTensor& tensor = set.begin()->second;
  EXPECT_EQ(tensor.form, "FP8 (F32 scales)");
  EXPECT_TRUE(at::equal(tensor.rows(128, 2), at::full({2, 32}, 4.0F)));
}

TEST(TensorSet, OpensTheFolderOfAnAdapter) {
  const TemporaryFolder folder;
  write_safetensors(folder / "adapter_model.safetensors", {{"base_model.model.x.lora_A.weight", at::ones({1, 2}), {}}});
  EXPECT_TRUE(open_tensors(folder.path()).contains("base_model.model.x.lora_A.weight"));
}

TEST(TensorSet, RefusesTwoNamesOfOneTensorAndAbsentFiles) {
  const TemporaryFolder folder;
  write_safetensors(folder / "twice.safetensors", {{"model.layers.0.self_attn.q_a_proj.weight", at::ones({2, 2}), {}},
                                                   {"layers.0.attn.wq_a.weight", at::ones({2, 2}), {}}});
  const std::string error = error_of<InputError>([&] { open_tensors(folder / "twice.safetensors"); });
  EXPECT_NE(error.find("twice.safetensors: holds model.layers.0.self_attn.q_a_proj.weight twice"), std::string::npos)
      << error;
  EXPECT_NE(error_of<InputError>([&] { open_tensors(folder / "absent"); }).find("absent"), std::string::npos);
  error_of<InputError>([&] { open_tensors(folder.path()); });
}

}  // namespace
}  // namespace asterism::cli
