#include "asterism/ops/rms_norm_rope.h"

#include <gtest/gtest.h>

#include "asterism/ops/rms_norm.h"
#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using testing::Inputs;
using testing::Outputs;
using testing::random_leaf;
using testing::random_tensor;
using testing::relative_difference;

constexpr double kEps = 1e-6;

RopeTable turns(int64_t width, int64_t tokens, at::ScalarType type = at::kDouble) {
  return make_rope_table({.width = width, .theta = 100.0}, at::arange(tokens, at::kLong) * 3 + 1, type);
}

TEST(RmsNormRope, IsTheNormAndThenTheRotation) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{5, 3, 24}, {5, 16}, {1, 2, 17}, {0, 2, 16}}) {
    SCOPED_TRACE(::testing::Message() << at::IntArrayRef(shape));
    const RopeTable t = turns(16, shape[0]);
    const at::Tensor fused = random_leaf(shape, "x"), composed = random_leaf(shape, "x");
    const at::Tensor y = rms_norm_rope(fused, kEps, t), want = rope(rms_norm(composed, {}, kEps), t);
    EXPECT_LE(relative_difference(y, want), 1e-15);
    const at::Tensor weight = random_tensor(shape, "dy");
    (y * weight).sum().backward();
    (want * weight).sum().backward();
    EXPECT_LE(relative_difference(fused.grad(), composed.grad()), 1e-14);
  }
}

TEST(RmsNormRope, GradientsMatchFiniteDifferences) {
  for (const int64_t tokens : {0, 1, 3}) {
    const auto run = [&](const Inputs& in) -> Outputs { return {rms_norm_rope(in[0], kEps, turns(4, tokens))}; };
    testing::expect_gradients_match(run, {random_leaf({tokens, 7}, "x")});
    testing::expect_gradients_match(run, {random_leaf({tokens, 2, 6}, "x")});
  }
}

TEST(RmsNormRope, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  const RopeTable single = turns(16, 6, at::kFloat);
  const auto run = [&](const Inputs& in) -> Outputs { return {rms_norm_rope(in[0], kEps, single)}; };
  testing::expect_all_precisions(run, {random_leaf({6, 3, 40}, "x")}, 1);
}

TEST(RmsNormRope, TakesStridedInputsAndGradients) {
  const RopeTable t = turns(8, 4);
  const at::Tensor x = random_leaf({4, 2, 20}, "x"), dense = x.detach().narrow(2, 3, 12).clone().requires_grad_(true);
  const at::Tensor dy = random_tensor({12, 2, 4}, "dy").permute({2, 1, 0});
  rms_norm_rope(x.narrow(2, 3, 12), kEps, t).backward(dy);
  rms_norm_rope(dense, kEps, t).backward(dy.contiguous());
  EXPECT_TRUE(at::equal(x.grad().narrow(2, 3, 12), dense.grad()));
}

TEST(RmsNormRope, RowsOfZerosStayFinite) {
  const at::Tensor x = at::zeros({2, 1, 8}, at::kDouble).requires_grad_(true);
  const at::Tensor y = rms_norm_rope(x, kEps, turns(4, 2));
  EXPECT_TRUE(at::equal(y, at::zeros_like(y)));
  y.sum().backward();
  EXPECT_TRUE(at::isfinite(x.grad()).all().item<bool>());
}

TEST(RmsNormRope, RefusesATableOfAnotherLength) {
  EXPECT_THROW(rms_norm_rope(at::ones({2, 8}), kEps, turns(4, 3)), c10::Error);
  EXPECT_THROW(rms_norm_rope(at::ones({3, 2}), kEps, turns(4, 3)), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
