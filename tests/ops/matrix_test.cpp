#include "asterism/ops/matrix.h"

#include <gtest/gtest.h>

#include "tests/support/packed_weights.h"

namespace asterism::ops {
namespace {

TEST(Matrix, ATensorIsAWeightWithAllItSays) {
  const Matrix w = at::ones({2, 3, 4}, at::kBFloat16);
  EXPECT_EQ(w.sizes(), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(w.bytes(), 48);
  EXPECT_EQ(w.storage(), "bf16");
  EXPECT_EQ(w.sum_type(), at::kFloat);
  EXPECT_TRUE(w.input().has_value());
  EXPECT_TRUE(at::equal(w.to(at::kFloat), at::ones({2, 3, 4})));
  EXPECT_EQ(Matrix(at::ones({1}, at::kDouble)).sum_type(), at::kDouble);
  EXPECT_FALSE(Matrix().defined());
}

TEST(Matrix, APackedWeightIsAConstant) {
  const PackedMatrix packed = testing::random_packed(testing::Packing::kFp4, {3, 8, 64}, "m");
  const Matrix w = packed;
  EXPECT_TRUE(w.defined());
  EXPECT_EQ(w.sizes(), packed.sizes());
  EXPECT_EQ(w.bytes(), packed.bytes());
  EXPECT_EQ(w.storage(), "fp4");
  EXPECT_EQ(w.sum_type(), at::kFloat);
  EXPECT_FALSE(w.input().has_value());
  EXPECT_TRUE(at::equal(w.to(at::kBFloat16), packed.decode(at::kBFloat16)));
}

}  // namespace
}  // namespace asterism::ops
