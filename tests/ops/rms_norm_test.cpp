#include "asterism/ops/rms_norm.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using testing::Inputs;
using testing::Outputs;
using testing::random_leaf;
using testing::random_tensor;

Outputs normalize(const Inputs& in) {
  return {rms_norm(in[0], in[1], 1e-6)};
}

TEST(RmsNorm, EqualsTheFormula) {
  const at::Tensor x = random_tensor({5, 3, 37}, "x"), weight = random_tensor({37}, "w");
  const at::Tensor plain = x * (x.square().mean(-1, true) + 0.25).rsqrt();
  EXPECT_LT(testing::relative_difference(rms_norm(x, {}, 0.25), plain), 1e-14);
  EXPECT_LT(testing::relative_difference(rms_norm(x, weight, 0.25), plain * weight), 1e-14);
  EXPECT_LT(testing::relative_difference(rms_norm(x.transpose(0, 1), weight, 0.25), (plain * weight).transpose(0, 1)),
            1e-14);
}

TEST(RmsNorm, GradientsMatchFiniteDifferences) {
  for (const int64_t rows : {0, 1, 4}) {
    for (const int64_t n : {1, 16, 37}) {
      testing::expect_gradients_match(normalize, {random_leaf({rows, n}, "x"), random_leaf({n}, "w")});
      testing::expect_gradients_match(normalize, {random_leaf({rows, n}, "x"), at::Tensor()});
    }
  }
  testing::expect_gradients_match(normalize, {random_leaf({2, 3, 5}, "x"), random_leaf({5}, "w")});
  testing::expect_gradients_match(normalize, {random_tensor({3, 5}, "x"), random_leaf({5}, "w")});
  testing::expect_gradients_match(normalize, {random_leaf({3, 5}, "x"), random_tensor({5}, "w")});
}

TEST(RmsNorm, WeightGradientCountsEveryRowOnceWithMoreRowsThanBlocks) {
  testing::expect_gradients_match(normalize, {random_leaf({131, 2}, "x"), random_leaf({2}, "w")});
}

TEST(RmsNorm, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  testing::expect_all_precisions(normalize, {random_leaf({7, 515}, "x"), random_leaf({515}, "w")}, 1);
}

TEST(RmsNorm, RoundsOnceToBrainFloat) {
  // sqrt(2.5) = 1.5811: the normalised row is 0.63246, 1.26491. Times 1.522 that is 246.43 / 128 for the second
  // channel; rounding before the multiplication would give 246.56 / 128, the next bf16 number.
  const at::Tensor x = at::tensor({1.0, 2.0}, at::kDouble).to(at::kBFloat16).unsqueeze(0);
  const at::Tensor y = rms_norm(x, at::full({2}, 1.522, at::kFloat), 0.0);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(y.to(at::kDouble)[0], at::tensor({246.0 / 256, 246.0 / 128}, at::kDouble))) << y;
}

TEST(RmsNorm, ZeroRowsGiveZeroWeightGradient) {
  const at::Tensor x = at::zeros({0, 4}), weight = at::ones({4}).requires_grad_(true);
  const auto grads = torch::autograd::grad({rms_norm(x, weight, 1e-6).sum()}, {weight});
  EXPECT_TRUE(at::equal(grads[0], at::zeros({4})));
}

TEST(RmsNorm, WeightGradientHasTheSameBitsForEveryNumberOfThreads) {
  const at::Tensor x = random_tensor({203, 33}, "x").to(at::kFloat);
  const at::Tensor weight = at::ones({33}).requires_grad_(true);
  const int threads = at::get_num_threads();
  std::vector<at::Tensor> grads;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    grads.push_back(torch::autograd::grad({rms_norm(x, weight, 1e-6).sum()}, {weight})[0]);
  }
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(grads[0], grads[1]));
  EXPECT_TRUE(at::equal(grads[0], grads[2]));
}

TEST(RmsNorm, RefusesAWeightOfAnotherWidth) {
  EXPECT_THROW(rms_norm(at::ones({2, 4}), at::ones({3}), 0), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
