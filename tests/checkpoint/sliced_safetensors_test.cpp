#include "asterism/checkpoint/sliced_safetensors.h"

#include <gtest/gtest.h>

#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::TemporaryFolder;

const std::vector<NamedTensor>& some_tensors() {
  static const std::vector<NamedTensor> tensors = {{"param.b", at::arange(12, at::kFloat).view({3, 4})},
                                                   {"param.a", at::arange(5, at::kFloat)},
                                                   {"buffer.t", at::arange(6, at::kLong)},
                                                   {"empty", at::empty({0}, at::kFloat)}};
  return tensors;
}

std::vector<PlannedTensor> plan_of(const std::vector<NamedTensor>& tensors) {
  std::vector<PlannedTensor> planned;
  for (const NamedTensor& tensor : tensors) {
    planned.push_back({tensor.name, tensor.stored_dtype(), tensor.tensor.sizes().vec(), tensor.stored_bytes()});
  }
  return planned;
}

TEST(SlicedSafetensors, AFileInSlicesHasTheBytesOfOneInTensors) {
  const TemporaryFolder folder;
  write_safetensors(folder / "whole", some_tensors());
  SlicedWriter writer(folder / "sliced", plan_of(some_tensors()));
  for (const NamedTensor& tensor : some_tensors()) {
    const at::Tensor flat = tensor.tensor.view({-1});
    const int64_t half = flat.numel() / 2;
    writer.write(tensor.name, half, flat.narrow(0, half, flat.numel() - half));
    writer.write(tensor.name, 0, flat.narrow(0, 0, half));
  }
  writer.close();
  EXPECT_EQ(read_text(folder / "sliced"), read_text(folder / "whole"));
}

TEST(SlicedSafetensors, WhatIsMissingOrDoesNotFitIsAnError) {
  const TemporaryFolder folder;
  SlicedWriter writer(folder / "sliced", plan_of(some_tensors()));
  EXPECT_THROW(writer.write("param.a", 3, at::zeros({3})), c10::Error);
  EXPECT_THROW(writer.write("param.a", 0, at::zeros({3}, at::kLong)), c10::Error);
  writer.write("param.a", 0, at::zeros({5}));
  EXPECT_THROW(writer.close(), c10::Error);
}

TEST(SlicedSafetensors, SlicesAreReadByNameAndTheRestElsewhere) {
  const TemporaryFolder folder;
  write_safetensors(folder / "whole", some_tensors());
  write_safetensors(folder / "rest", {{"c", at::full({3}, 7.0F)}});
  SlicedFile rest(folder / "rest"), file(folder / "whole", "param.", &rest);
  const at::Tensor two = at::empty({2}), doubles = at::empty({2}, at::kDouble);
  file.read("b", 7, two);
  EXPECT_TRUE(at::equal(two, at::tensor({7.0F, 8.0F})));
  file.read("a", 3, doubles);
  EXPECT_TRUE(at::equal(doubles, at::tensor({3.0, 4.0}, at::kDouble)));
  file.read("c", 0, two);
  EXPECT_TRUE(at::equal(two, at::tensor({7.0F, 7.0F})));
  EXPECT_THROW(file.read("a", 4, two), c10::Error);
}

TEST(SlicedSafetensors, AnOutlineIsWrittenFromItsReader) {
  const TemporaryFolder folder;
  const int64_t elements = (1 << 20) + 5;  // more than a stretch
  const at::Tensor values = at::arange(elements, at::kFloat);
  write_safetensors(folder / "whole", {{"x", values, at::kBFloat16}});
  const auto read = [&](int64_t begin, const at::Tensor& out) {
    at::Tensor(out).copy_(values.narrow(0, begin, out.numel()));
  };
  write_safetensors(folder / "read", {{"x", model::outline({elements}, at::kFloat), at::kBFloat16, read}});
  EXPECT_EQ(read_text(folder / "read"), read_text(folder / "whole"));
  EXPECT_THROW(write_safetensors(folder / "none", {{"x", model::outline({2}, at::kFloat)}}), c10::Error);
}

}  // namespace
}  // namespace asterism::checkpoint
