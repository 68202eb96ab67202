#include "asterism/ops/exact_sum.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gradients.h"

namespace asterism::ops {
namespace {

double sum_of(const at::Tensor& values) {
  ExactSquareSum sum;
  sum.add(values.contiguous());
  return sum.value();
}

// Magnitudes from 2^-40 to 2^40: ordinary sums depend on their order.
at::Tensor spread(int64_t count) {
  const at::Tensor mantissa = testing::random_tensor({count}, "mantissa");
  const at::Tensor exponent = (testing::random_tensor({count}, "exponent") * 20.0).clamp(-40.0, 40.0).floor();
  return (mantissa * at::exp2(exponent)).to(at::kFloat);
}

TEST(ExactSquareSum, DoesNotDependOnTheOrderOrTheParts) {
  const at::Tensor values = spread(10'000);
  const double expected = sum_of(values);
  EXPECT_EQ(sum_of(values.flip(0)), expected);
  EXPECT_EQ(sum_of(std::get<0>(values.sort())), expected);
  for (const int64_t part : {1, 7, 1000, 9999}) {
    ExactSquareSum total;
    for (int64_t begin = 0; begin < values.numel(); begin += part) {
      ExactSquareSum own;
      own.add(values.narrow(0, begin, std::min(part, values.numel() - begin)));
      total.add_limbs(own);
    }
    EXPECT_EQ(total.value(), expected) << part;
  }
  const double plain = values.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(expected, plain, 1e-12 * plain);
}

TEST(ExactSquareSum, LimbsMayBeAddedAsIntegers) {
  const at::Tensor values = spread(1000);
  ExactSquareSum a, b, both;
  a.add(values.narrow(0, 0, 300));
  b.add(values.narrow(0, 300, 700));
  both.set_limbs(a.limbs() + b.limbs());
  EXPECT_EQ(both.value(), sum_of(values));
}

TEST(ExactSquareSum, HoldsWhatADoubleWouldLose) {
  // Each small square is below half a unit of the big one's last place: added to it in turn, all would vanish.
  const at::Tensor big = at::full({1}, std::ldexp(1.0F, 50));
  const at::Tensor small = at::full({1 << 12}, std::ldexp(1.0F, 18));  // 2^12 squares of 2^36 are 2^48, one unit
  ExactSquareSum sum;
  sum.add(small);
  sum.add(big);
  EXPECT_EQ(sum.value(), std::ldexp(1.0, 100) + std::ldexp(1.0, 48));
}

TEST(ExactSquareSum, TheEndsOfTheRange) {
  const float smallest = std::numeric_limits<float>::denorm_min(), largest = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of(at::full({3}, smallest)), 3.0 * std::ldexp(1.0, -298));
  EXPECT_EQ(sum_of(at::full({2}, largest)), 2.0 * static_cast<double>(largest) * static_cast<double>(largest));
  EXPECT_EQ(sum_of(at::zeros({0})), 0.0);
  EXPECT_EQ(sum_of(at::full({2}, -0.0F)), 0.0);
  EXPECT_TRUE(std::isinf(sum_of(at::tensor({1.0F, -INFINITY}))));
  EXPECT_TRUE(std::isinf(sum_of(at::tensor({1.0F, NAN}))));
}

}  // namespace
}  // namespace asterism::ops
