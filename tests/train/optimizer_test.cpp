#include "asterism/train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace asterism::train {
namespace {

Parameter parameter(const std::string& name, std::vector<float> values, std::vector<float> grad, bool decays = false) {
  Parameter p{name, at::tensor(values).requires_grad_(true), decays};
  if (!grad.empty()) p.value.mutable_grad() = at::tensor(grad);
  return p;
}

TEST(InspectGradients, NormIsOverAllTensorsTogether) {
  // TC2b on one rank: expert gradients {3, 4, 0, 12} and a dense one of 84 give 85.
  const std::vector<Parameter> parameters = {parameter("experts", {0, 0, 0, 0}, {3, 4, 0, 12}),
                                             parameter("dense", {0}, {84}), parameter("unused", {0}, {})};
  const GradientReport report = inspect_gradients(parameters);
  EXPECT_NEAR(report.norm, 85.0, 1e-9);
  EXPECT_EQ(report.non_finite, "");
  EXPECT_NEAR(clip_factor(report.norm, 8.5), 0.1, 1e-6);
  EXPECT_EQ(clip_factor(report.norm, 0.0), 1.0);
  EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
}

TEST(InspectGradients, NamesTheFirstTensorThatIsNotFinite) {
  const std::vector<Parameter> parameters = {parameter("fine", {0}, {1}), parameter("bad", {0, 0}, {1, NAN}),
                                             parameter("worse", {0}, {INFINITY})};
  EXPECT_EQ(inspect_gradients(parameters).non_finite, "bad");
}

TEST(AdamW, LeavesAParameterWithoutGradientAloneEvenFromDecay) {
  std::vector<Parameter> parameters = {parameter("used", {1, 2}, {0.5, -0.5}, true),
                                       parameter("unused", {1, 2}, {}, true)};
  AdamW optimizer(parameters, {});
  optimizer.step(0.1, 1.0);
  EXPECT_TRUE(at::equal(parameters[1].value, at::tensor({1.0f, 2.0f})));
  EXPECT_FALSE(at::equal(parameters[0].value, at::tensor({1.0f, 2.0f})));
  EXPECT_EQ(optimizer.states()[0].updates, 1);
  EXPECT_EQ(optimizer.states()[1].updates, 0);
  // Moments exist all the same: the set of saved tensors is the plan's (TC13).
  EXPECT_TRUE(at::equal(optimizer.states()[1].exp_avg, at::zeros({2})));
  EXPECT_FALSE(parameters[0].value.grad().defined());
}

TEST(AdamW, FirstStepFollowsTheFormula) {
  // m / (1 - b1) = g and sqrt(v / (1 - b2)) = |g|: the first update is lr * sign(g) after the decay.
  std::vector<Parameter> parameters = {parameter("p", {1.0f, -2.0f}, {0.25f, -4.0f}, true)};
  OptimizerSection settings;
  settings.weight_decay = 0.5;
  AdamW optimizer(parameters, settings);
  optimizer.step(0.1, 1.0);
  EXPECT_NEAR(parameters[0].value[0].item<float>(), 1.0 * 0.95 - 0.1, 1e-6);
  EXPECT_NEAR(parameters[0].value[1].item<float>(), -2.0 * 0.95 + 0.1, 1e-6);
}

}  // namespace
}  // namespace asterism::train
