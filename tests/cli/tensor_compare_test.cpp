#include "asterism/cli/tensor_compare.h"

#include <gtest/gtest.h>

#include <limits>

namespace asterism::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(TensorCompare, EqualTensorsDoNotDiffer) {
  const at::Tensor a = at::tensor({1.0, 0.0, kInfinity, kNan}, at::kFloat);
  const TensorDifference difference = compare_tensors(a, a.clone(), {});
  EXPECT_EQ(difference.elements, 4);
  EXPECT_EQ(difference.differing, 0);
  EXPECT_EQ(difference.max_absolute, 0.0);
  EXPECT_EQ(difference.max_relative, 0.0);
}

TEST(TensorCompare, ReportsTheWorstElementAndTheAngle) {
  const TensorDifference difference = compare_tensors(at::tensor({3.0, 4.0}), at::tensor({3.0, -4.0}), {});
  EXPECT_EQ(difference.differing, 1);
  EXPECT_EQ(difference.max_absolute, 8.0);
  EXPECT_EQ(difference.max_relative, 2.0);
  EXPECT_DOUBLE_EQ(difference.cosine(), (9.0 - 16.0) / 25.0);
}

TEST(TensorCompare, ToleranceIsAbsolutePlusRelativeToTheSecond) {
  const at::Tensor a = at::tensor({10.0}, at::kDouble), b = at::tensor({8.0}, at::kDouble);
  EXPECT_EQ(compare_tensors(a, b, {.relative = 0.25, .absolute = 0.0}).differing, 0);
  EXPECT_EQ(compare_tensors(a, b, {.relative = 0.24, .absolute = 0.0}).differing, 1);
  EXPECT_EQ(compare_tensors(a, b, {.relative = 0.24, .absolute = 0.08}).differing, 0);
  EXPECT_EQ(compare_tensors(b, a, {.relative = 0.2, .absolute = 0.0}).differing, 0);
}

TEST(TensorCompare, NoToleranceHidesANumberThatIsNotFinite) {
  for (const double odd : {kNan, kInfinity, -kInfinity}) {
    const auto difference = compare_tensors(at::tensor({odd}), at::tensor({1.0}), {.relative = 1e9, .absolute = 1e9});
    EXPECT_EQ(difference.differing, 1) << odd;
    EXPECT_EQ(difference.max_absolute, kInfinity) << odd;
  }
}

TEST(TensorCompare, IntegersAreComparedExactly) {
  const int64_t large = (int64_t{1} << 53) + 1;
  const at::Tensor a = at::tensor({large}, at::kLong), b = at::tensor({large - 1}, at::kLong);
  EXPECT_EQ(compare_tensors(a, b, {.relative = 1.0, .absolute = 1.0}).differing, 1);
  EXPECT_EQ(compare_tensors(a, a.clone(), {}).differing, 0);
}

TEST(TensorCompare, TypesMayDiffer) {
  const at::Tensor a = at::tensor({1.0, 0.5}, at::kFloat);
  EXPECT_EQ(compare_tensors(a, a.to(at::kBFloat16), {}).differing, 0);
  EXPECT_EQ(compare_tensors(at::tensor({0.1}, at::kFloat), at::tensor({0.1}).to(at::kBFloat16), {}).differing, 1);
}

TEST(TensorCompare, SlicesAddUp) {
  at::Tensor a = at::zeros({(1 << 20) + 5}), b = a.clone();
  a[0] = 1.0;
  b[0] = 1.0;
  b[(1 << 20) + 4] = 2.0;
  const TensorDifference difference = compare_tensors(a, b, {});
  EXPECT_EQ(difference.elements, (1 << 20) + 5);
  EXPECT_EQ(difference.differing, 1);
  EXPECT_EQ(difference.max_absolute, 2.0);
  EXPECT_DOUBLE_EQ(difference.cosine(), 1.0 / std::sqrt(5.0));
}

TEST(TensorCompare, ZerosHaveACosine) {
  EXPECT_EQ(compare_tensors(at::zeros({3}), at::zeros({3}), {}).cosine(), 1.0);
  EXPECT_EQ(compare_tensors(at::zeros({3}), at::ones({3}), {}).cosine(), 0.0);
  EXPECT_EQ(compare_tensors(at::zeros({0, 3}), at::zeros({0, 3}), {}).cosine(), 1.0);
}

}  // namespace
}  // namespace asterism::cli
