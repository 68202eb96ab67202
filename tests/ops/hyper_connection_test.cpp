#include "asterism/ops/hyper_connection.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::expect_gradients_match;
using asterism::testing::Inputs;
using asterism::testing::Outputs;
using asterism::testing::outputs_and_gradients;
using asterism::testing::random_tensor;
using asterism::testing::relative_difference;
using asterism::testing::relative_l2;

const HyperConnectionConfig kConfig{.sinkhorn_iterations = 20, .sinkhorn_eps = 1e-6, .rms_eps = 1e-6};

// x, fn, base, scale of a site (`mix`) or of the final collapse.
Inputs site_inputs(int64_t t, int64_t n, int64_t d, bool mix) {
  const int64_t m = mix ? n * (n + 2) : n;
  return {random_tensor({t, n, d}, "x").requires_grad_(), random_tensor({m, n * d}, "fn", 0.5).requires_grad_(),
          random_tensor({m}, "base").requires_grad_(), random_tensor({mix ? 3 : 1}, "scale").requires_grad_()};
}

Outputs pre(const Inputs& in) {
  const HyperConnectionResult result = hyper_connection_pre(in[0], in[1], in[2], in[3], kConfig);
  return {result.y_TD, result.post_TN, result.comb_TNN};
}

Outputs post(const Inputs& in) {
  return {hyper_connection_post(in[0], in[1], in[2], in[3])};
}

Outputs head(const Inputs& in) {
  return {hyper_connection_head(in[0], in[1], in[2], in[3], kConfig)};
}

Inputs post_inputs(int64_t t, int64_t n, int64_t d) {
  return {random_tensor({t, n, d}, "x").requires_grad_(), random_tensor({t, d}, "out").requires_grad_(),
          random_tensor({t, n}, "post").requires_grad_(), random_tensor({t, n, n}, "comb").requires_grad_()};
}

// The formulas of a site, written with whole-tensor operations.
Outputs reference_pre(const Inputs& in) {
  const int64_t t = in[0].size(0), n = in[0].size(1);
  const at::Tensor flat = in[0].reshape({t, n * in[0].size(2)});
  const at::Tensor unit = flat / at::sqrt(flat.square().mean(1, true) + kConfig.rms_eps);
  const at::Tensor mixed = at::matmul(unit, in[1].t());
  const auto logits = [&](int64_t first, int64_t count, int64_t group) {
    return mixed.narrow(1, first, count) * in[3][group] + in[2].narrow(0, first, count);
  };
  const at::Tensor weight = at::sigmoid(logits(0, n, 0)) + kConfig.sinkhorn_eps;
  at::Tensor comb = at::softmax(logits(2 * n, n * n, 2).view({t, n, n}), 2) + kConfig.sinkhorn_eps;
  comb = comb / (comb.sum(1, true) + kConfig.sinkhorn_eps);
  for (int i = 1; i < kConfig.sinkhorn_iterations; ++i) {
    comb = comb / (comb.sum(2, true) + kConfig.sinkhorn_eps);
    comb = comb / (comb.sum(1, true) + kConfig.sinkhorn_eps);
  }
  return {(weight.unsqueeze(2) * in[0]).sum(1), 2 * at::sigmoid(logits(n, n, 1)), comb};
}

TEST(HyperConnectionPre, MatchesTheFormulas) {
  for (const int64_t n : {2, 3, 4}) {
    const Inputs in = site_inputs(19, n, 5, true);
    const Outputs got = pre(in), expected = reference_pre(in);
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_LE(relative_difference(got[i], expected[i]), 1e-12) << "output " << i << ", " << n << " streams";
    }
  }
}

TEST(HyperConnectionPre, GradientsMatchFiniteDifferences) {
  for (const int64_t n : {2, 3, 4}) {
    for (const int64_t t : {0, 1, 3}) expect_gradients_match(pre, site_inputs(t, n, 3, true));
  }
}

TEST(HyperConnectionPre, ABlockOfTokensHasTheGradientsOfAutograd) {
  const Inputs in = site_inputs(21, 4, 6, true);
  const Outputs got = outputs_and_gradients(pre, in), expected = outputs_and_gradients(reference_pre, in);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_LE(relative_l2(got[i], expected[i]), 1e-11) << "tensor " << i;
}

TEST(HyperConnectionPre, UnusedOutputsLeaveDefinedGradients) {
  Inputs in = site_inputs(2, 3, 2, true);
  pre(in)[0].sum().backward();
  for (const at::Tensor& input : in) ASSERT_TRUE(input.grad().defined());
  EXPECT_TRUE(at::equal(in[2].grad().narrow(0, 3, 12), at::zeros({12}, at::kDouble)));
  EXPECT_GT(in[2].grad().narrow(0, 0, 3).abs().min().item<double>(), 0.0);
}

TEST(HyperConnectionPost, SumsOverTheFirstIndexOfTheMix) {
  const at::Tensor x = at::tensor({1.0, 10.0, 100.0}, at::kDouble).view({1, 3, 1});
  at::Tensor comb = at::zeros({1, 3, 3}, at::kDouble);  // stream 0 goes to 1, 1 to 2, 2 to 0
  comb[0][0][1] = 1.0;
  comb[0][1][2] = 1.0;
  comb[0][2][0] = 1.0;
  const at::Tensor out = at::full({1, 1}, 0.5, at::kDouble),
                   weight = at::tensor({2.0, 4.0, 6.0}, at::kDouble).view({1, 3});
  const at::Tensor mixed = hyper_connection_post(x, out, weight, comb);
  EXPECT_TRUE(at::equal(mixed.view({-1}), at::tensor({101.0, 3.0, 13.0}, at::kDouble)));
}

TEST(HyperConnectionPost, GradientsMatchFiniteDifferences) {
  for (const int64_t n : {2, 3, 4}) {
    for (const int64_t t : {0, 1, 3}) expect_gradients_match(post, post_inputs(t, n, 3));
  }
}

TEST(HyperConnectionHead, MatchesTheFormulaAndFiniteDifferences) {
  const Inputs in = site_inputs(5, 4, 3, false);
  const at::Tensor flat = in[0].reshape({5, 12});
  const at::Tensor unit = flat / at::sqrt(flat.square().mean(1, true) + kConfig.rms_eps);
  const at::Tensor weight = at::sigmoid(at::matmul(unit, in[1].t()) * in[3] + in[2]) + kConfig.sinkhorn_eps;
  EXPECT_LE(relative_difference(head(in)[0], (weight.unsqueeze(2) * in[0]).sum(1)), 1e-12);
  for (const int64_t t : {0, 1, 3}) expect_gradients_match(head, site_inputs(t, 4, 3, false));
}

// The fp64 results against those of activations in `type` with fp32 parameters; activations come first in `in`.
void expect_precision(Outputs (*function)(const Inputs&), Inputs in, size_t num_activations, at::ScalarType type,
                      size_t num_outputs, double forward, double backward) {
  Inputs low;
  for (size_t i = 0; i < in.size(); ++i) low.push_back(in[i].detach().to(i < num_activations ? type : at::kFloat));
  for (size_t i = 0; i < in.size(); ++i) in[i] = low[i].to(at::kDouble);
  const Outputs got = outputs_and_gradients(function, low), expected = outputs_and_gradients(function, in);
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_LE(relative_l2(got[i], expected[i]), i < num_outputs ? forward : backward) << type << ", tensor " << i;
  }
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(got[num_outputs + i].scalar_type(), low[i].scalar_type());
  EXPECT_EQ(got[0].scalar_type(), type);
}

TEST(HyperConnection, LowerPrecisionStaysClose) {
  for (const bool half : {false, true}) {
    const at::ScalarType type = half ? at::kBFloat16 : at::kFloat;
    const double forward = half ? 5e-3 : 1e-5, backward = half ? 1e-2 : 2e-5;
    expect_precision(pre, site_inputs(40, 4, 16, true), 1, type, 3, forward, backward);
    expect_precision(post, post_inputs(40, 4, 16), 2, type, 1, forward, backward);
    expect_precision(head, site_inputs(40, 4, 16, false), 1, type, 1, forward, backward);
  }
}

TEST(HyperConnection, RepeatsAndThreadsGiveTheSameBits) {
  Inputs site = site_inputs(300, 4, 8, true), mix = post_inputs(300, 4, 8);
  for (Inputs* in : {&site, &mix}) {
    for (at::Tensor& input : *in) input = input.detach().to(at::kFloat);
  }
  const auto compute = [&] {
    Outputs all = outputs_and_gradients(pre, site);
    for (const at::Tensor& x : outputs_and_gradients(post, mix)) all.push_back(x);
    return all;
  };
  asterism::testing::expect_threads_do_not_matter(compute);
  const Outputs first = compute(), second = compute();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << "tensor " << i;
}

TEST(HyperConnection, WrongShapesAreRefused) {
  const Inputs in = site_inputs(2, 3, 4, true);
  EXPECT_THROW(hyper_connection_head(in[0], in[1], in[2], in[3], kConfig), c10::Error);
  EXPECT_THROW(hyper_connection_pre(in[0], in[1].narrow(1, 0, 11), in[2], in[3], kConfig), c10::Error);
  EXPECT_THROW(hyper_connection_pre(in[0], in[1], in[2], in[3], {.sinkhorn_iterations = 0}), c10::Error);
  const Inputs mix = post_inputs(2, 3, 4);
  EXPECT_THROW(hyper_connection_post(mix[0], mix[1].narrow(1, 0, 3), mix[2], mix[3]), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
