#include "asterism/ops/swiglu.h"

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

auto with_limit(double limit) {
  return [limit](const Inputs& in) -> Outputs { return {swiglu(in[0], in[1], limit)}; };
}

at::Tensor composition(const at::Tensor& gate_up, const at::Tensor& row_weight, double limit) {
  const auto halves = gate_up.chunk(2, 1);
  const at::Tensor gate = limit > 0 ? at::clamp_max(halves[0], limit) : halves[0];
  const at::Tensor up = limit > 0 ? at::clamp(halves[1], -limit, limit) : halves[1];
  return gate * at::sigmoid(gate) * up * row_weight.unsqueeze(1);
}

TEST(Swiglu, ClampsTheGateFromAboveAndTheUpProjectionOnBothSides) {
  const at::Tensor in = at::tensor({20.0, -20.0, 20.0, 1.0, 12.0, 12.0, -12.0, 0.5}, at::kDouble).view({1, 8});
  const at::Tensor out = swiglu(in, {}, 10.0);
  EXPECT_NEAR(out[0][0].item<double>(), 99.995460, 5e-7);
  EXPECT_NEAR(out[0][1].item<double>(), -200.0 / (1.0 + std::exp(20.0)), 1e-15);
  EXPECT_NEAR(out[0][2].item<double>(), -99.995460, 5e-7);
  EXPECT_NEAR(out[0][3].item<double>(), 0.5 / (1.0 + std::exp(-1.0)), 1e-15);
  EXPECT_NEAR(swiglu(in, {}, 0.0)[0][0].item<double>(), 240.0, 1e-5);
}

TEST(Swiglu, EqualsTheFormula) {
  const at::Tensor gate_up = random_tensor({6, 74}, "gu"), weight = random_tensor({6}, "w");
  for (const double limit : {0.0, 0.5, 10.0}) {
    const at::Tensor expected = composition(gate_up, weight, limit);
    EXPECT_LT(testing::relative_difference(swiglu(gate_up, weight, limit), expected), 1e-14) << limit;
    const at::Tensor strided = gate_up.t().contiguous().t();
    EXPECT_TRUE(at::equal(swiglu(strided, weight, limit), swiglu(gate_up, weight, limit)));
  }
}

TEST(Swiglu, GradientsMatchFiniteDifferences) {
  for (const double limit : {0.0, 0.7, 10.0}) {
    for (const int64_t rows : {0, 1, 3}) {
      testing::expect_gradients_match(with_limit(limit), {random_leaf({rows, 74}, "gu"), random_leaf({rows}, "w")});
      testing::expect_gradients_match(with_limit(limit), {random_leaf({rows, 74}, "gu"), at::Tensor()});
    }
    testing::expect_gradients_match(with_limit(limit), {random_tensor({3, 6}, "gu"), random_leaf({3}, "w")});
    testing::expect_gradients_match(with_limit(limit), {random_leaf({3, 6}, "gu"), random_tensor({3}, "w")});
  }
}

TEST(Swiglu, GradientStopsBeyondTheLimitAndPassesAtEquality) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor in =
        at::tensor({10.5, 10.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 10.0, -10.0, 10.5, -10.5}, at::kDouble).view({1, 12});
    const at::Tensor leaf = in.to(type).requires_grad_(true);
    const at::Tensor grad = torch::autograd::grad({swiglu(leaf, {}, 10.0).sum()}, {leaf})[0][0];
    const at::Tensor passes = at::tensor({0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, at::kLong);
    EXPECT_TRUE(at::equal(grad.ne(0).to(at::kLong), passes)) << grad;
  }
}

TEST(Swiglu, SinglePrecisionExponentialIsAccurateOverTheWholeRange) {
  const at::Tensor gate = at::linspace(-80.0, 80.0, 4001, at::kFloat).unsqueeze(1);
  const at::Tensor out = swiglu(at::cat({gate, at::ones_like(gate)}, 1), {}, 0.0);
  const at::Tensor exact = gate.to(at::kDouble) * at::sigmoid(gate.to(at::kDouble));
  const at::Tensor gap = (out.to(at::kDouble) - exact).abs() / exact.abs().clamp_min(1e-300);
  EXPECT_LT(gap.max().item<double>(), 1e-6);
  const at::Tensor extreme = at::tensor({-1e4F, 1e4F, 1.0F, 1.0F}).view({1, 4});
  EXPECT_NEAR(swiglu(extreme, {}, 0.0)[0][0].item<float>(), 0.0F, 1e-30F);
  EXPECT_EQ(swiglu(extreme, {}, 0.0)[0][1].item<float>(), 1e4F);
}

TEST(Swiglu, NotANumberIsNotHiddenByTheClamp) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(swiglu(at::tensor({nan, 1.0F}).view({1, 2}), {}, 10.0).isnan().item<bool>());
  EXPECT_TRUE(swiglu(at::tensor({1.0F, nan}).view({1, 2}), {}, 10.0).isnan().item<bool>());
}

TEST(Swiglu, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  for (const double limit : {0.7, 10.0}) {
    // The row weight stays fp32: it is number 1, the first of the "weights".
    testing::expect_all_precisions(with_limit(limit), {random_leaf({9, 260}, "gu"), random_leaf({9}, "w")}, 1);
  }
}

TEST(Swiglu, RefusesShapesThatDoNotFit) {
  EXPECT_THROW(swiglu(at::ones({2, 3}), {}, 10.0), c10::Error);
  EXPECT_THROW(swiglu(at::ones({2, 4}), at::ones({3}), 10.0), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
