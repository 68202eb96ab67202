#include "asterism/ops/column_sum.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::random_tensor;

TEST(ColumnSum, AddsEveryRowAcrossChunkBorders) {
  for (const int64_t rows : {0, 1, 127, 128, 129, 300}) {
    const at::Tensor x = at::arange(rows * 3, at::kDouble).view({rows, 3});
    EXPECT_TRUE(at::equal(column_sum(x), x.sum(0))) << rows << " rows";
  }
}

TEST(ColumnSum, Bf16IsSummedInFp32) {
  const at::Tensor sum = column_sum(at::ones({1000, 2}, at::kBFloat16));
  EXPECT_EQ(sum.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(sum, at::full({2}, 1000.0f)));
}

TEST(ColumnSum, ThreadsDoNotChangeTheOrder) {
  const at::Tensor x = random_tensor({5000, 24}, "column_sum").to(at::kFloat);
  asterism::testing::expect_threads_do_not_matter([&] { return std::vector<at::Tensor>{column_sum(x)}; });
}

}  // namespace
}  // namespace asterism::ops
