#include "asterism/ops/adamw.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/support/gradients.h"

namespace asterism::ops {
namespace {

using testing::random_tensor;

struct State {
  at::Tensor param, exp_avg, exp_avg_sq;
};

State start(int64_t numel, at::ScalarType type) {
  return {random_tensor({numel}, "p").to(type), at::zeros({numel}, type), at::zeros({numel}, type)};
}

AdamWArgs some_args(int64_t step) {
  return {.lr = 0.01 * static_cast<double>(step),
          .beta1 = 0.8,
          .beta2 = 0.95,
          .eps = 1e-3,
          .weight_decay = 0.3,
          .grad_scale = 0.7,
          .step = step};
}

at::Tensor gradient(int64_t numel, int64_t step) {
  return random_tensor({numel}, "g" + std::to_string(step));
}

// The published update, one formula after the other.
void reference_update(State& s, const at::Tensor& raw_grad, const AdamWArgs& a) {
  const at::Tensor grad = raw_grad * a.grad_scale;
  s.param = s.param - a.lr * a.weight_decay * s.param;
  s.exp_avg = a.beta1 * s.exp_avg + (1 - a.beta1) * grad;
  s.exp_avg_sq = a.beta2 * s.exp_avg_sq + (1 - a.beta2) * grad * grad;
  const at::Tensor mean = s.exp_avg / (1 - std::pow(a.beta1, a.step));
  const at::Tensor variance = s.exp_avg_sq / (1 - std::pow(a.beta2, a.step));
  s.param = s.param - a.lr * mean / (variance.sqrt() + a.eps);
}

TEST(AdamW, EqualsTheFormulaOverSeveralSteps) {
  for (const int64_t numel : {0, 1, 37}) {
    State exact = start(numel, at::kDouble);
    const State wide = start(numel, at::kDouble), narrow = start(numel, at::kFloat);
    for (int64_t step = 1; step <= 6; ++step) {
      const at::Tensor grad = gradient(numel, step), before = grad.clone();
      adamw(wide.param, grad, wide.exp_avg, wide.exp_avg_sq, some_args(step));
      adamw(narrow.param, grad.to(at::kFloat), narrow.exp_avg, narrow.exp_avg_sq, some_args(step));
      reference_update(exact, grad, some_args(step));
      EXPECT_TRUE(at::equal(grad, before));
    }
    EXPECT_LT(testing::relative_difference(wide.param, exact.param), 1e-14);
    EXPECT_LT(testing::relative_difference(wide.exp_avg, exact.exp_avg), 1e-14);
    EXPECT_LT(testing::relative_difference(wide.exp_avg_sq, exact.exp_avg_sq), 1e-14);
    EXPECT_LT(testing::relative_difference(narrow.param, exact.param), 2e-6);
  }
}

TEST(AdamW, FirstStepMovesByTheLearningRate) {
  const at::Tensor param = at::zeros({2}), exp_avg = at::zeros({2}), exp_avg_sq = at::zeros({2});
  adamw(param, at::tensor({1e-3F, -50.0F}), exp_avg, exp_avg_sq, {.lr = 0.5, .eps = 0.0});
  EXPECT_NEAR(param[0].item<float>(), -0.5F, 1e-6F);
  EXPECT_NEAR(param[1].item<float>(), 0.5F, 1e-6F);
}

TEST(AdamW, HasTheSameBitsForEveryNumberOfThreads) {
  const int64_t numel = 100003;
  const int threads = at::get_num_threads();
  std::vector<State> states;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    states.push_back(start(numel, at::kFloat));
    const State& s = states.back();
    for (int64_t step = 1; step <= 2; ++step) {
      adamw(s.param, gradient(numel, step).to(at::kFloat), s.exp_avg, s.exp_avg_sq, some_args(step));
    }
  }
  at::set_num_threads(threads);
  for (const State& s : states) {
    EXPECT_TRUE(at::equal(s.param, states[0].param));
    EXPECT_TRUE(at::equal(s.exp_avg_sq, states[0].exp_avg_sq));
  }
}

TEST(AdamW, AnElementHasTheSameBitsWhereverItLies) {
  // Sharding cuts a tensor anywhere: an element may fall into the vector body or the tail of a loop.
  const int64_t numel = 61;
  const State whole = start(numel, at::kFloat), parts = start(numel, at::kFloat);
  const at::Tensor grad = gradient(numel, 1).to(at::kFloat);
  adamw(whole.param, grad, whole.exp_avg, whole.exp_avg_sq, some_args(1));
  for (const auto& [begin, length] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 1}, {4, 50}, {54, 7}}) {
    const auto cut = [&, b = begin, n = length](const at::Tensor& t) { return t.narrow(0, b, n); };
    adamw(cut(parts.param), cut(grad), cut(parts.exp_avg), cut(parts.exp_avg_sq), some_args(1));
  }
  EXPECT_TRUE(at::equal(whole.param, parts.param));
  EXPECT_TRUE(at::equal(whole.exp_avg, parts.exp_avg));
  EXPECT_TRUE(at::equal(whole.exp_avg_sq, parts.exp_avg_sq));
}

TEST(AdamW, RefusesTensorsThatDoNotFit) {
  const at::Tensor four = at::zeros({4}), five = at::zeros({5}), wide = at::zeros({4}, at::kDouble);
  EXPECT_THROW(adamw(four, five, four, four, {}), c10::Error);
  EXPECT_THROW(adamw(four, four, wide, four, {}), c10::Error);
  EXPECT_THROW(adamw(four, four, four, four, {.step = 0}), c10::Error);
  EXPECT_THROW(adamw(four, at::zeros({8}).slice(0, 0, 8, 2), four, four, {}), c10::Error);
}

TEST(SumOfSquares, EqualsTheSumAndDoesNotDependOnThreads) {
  const at::Tensor values = random_tensor({50001}, "v").to(at::kFloat);
  const double exact = values.to(at::kDouble).square().sum().item<double>();
  const int threads = at::get_num_threads();
  std::vector<double> sums;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    sums.push_back(sum_of_squares(values));
  }
  at::set_num_threads(threads);
  EXPECT_NEAR(sums[0], exact, 1e-9 * exact);
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
  EXPECT_EQ(sum_of_squares(at::empty({0})), 0.0);
  EXPECT_EQ(sum_of_squares(at::full({3, 2}, 2.0, at::kDouble)), 24.0);
  EXPECT_EQ(sum_of_squares(at::full({3, 2}, 2.0, at::kBFloat16)), 24.0);
  EXPECT_EQ(sum_of_squares(at::full({1}, 1e30F)), static_cast<double>(1e30F) * static_cast<double>(1e30F));
}

}  // namespace
}  // namespace asterism::ops
