#include "asterism/ops/linear_cross_entropy.h"

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

constexpr int64_t kVocab = 37;

at::Tensor some_targets() {
  return at::tensor({3, -100, 36, 0, -100, 7, 7}, at::kLong);
}
at::Tensor some_weights() {
  return at::tensor({1.0, 9.0, 0.5, 0.0, 9.0, 2.0, 1.5}, at::kDouble);
}

at::Tensor composition(const at::Tensor& h, const at::Tensor& w, const at::Tensor& target, const at::Tensor& weight) {
  const at::Tensor log_p = at::log_softmax(h.matmul(w.t()), 1);
  const at::Tensor picked = log_p.gather(1, target.clamp_min(0).unsqueeze(1)).squeeze(1);
  return -(picked * weight * target.ne(kIgnoredTarget)).sum();
}

TEST(LinearCrossEntropy, EqualsTheCompositionWithIgnoredRowsAndWeights) {
  for (const bool weighted : {false, true}) {
    const at::Tensor h = random_leaf({7, 5}, "h"), w = random_leaf({kVocab, 5}, "w");
    const at::Tensor weight = weighted ? some_weights() : at::ones({7}, at::kDouble);
    const at::Tensor expected = composition(h, w, some_targets(), weight);
    const at::Tensor loss = linear_cross_entropy(h, w, some_targets(), weighted ? weight : at::Tensor());
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-12);
    const auto grads = torch::autograd::grad({loss * 0.3}, {h, w});
    const auto expected_grads = torch::autograd::grad({expected * 0.3}, {h, w});
    EXPECT_LT(testing::relative_difference(grads[0], expected_grads[0]), 1e-13);
    EXPECT_LT(testing::relative_difference(grads[1], expected_grads[1]), 1e-13);
  }
}

TEST(LinearCrossEntropy, GradientsMatchFiniteDifferences) {
  const auto loss = [](const Inputs& in) -> Outputs {
    return {linear_cross_entropy(in[0], in[1], in[2], in[3], /*chunk_bytes=*/3 * 8 * 6)};
  };
  const at::Tensor h = random_leaf({7, 4}, "h"), w = random_leaf({6, 4}, "w");
  const at::Tensor target = at::tensor({3, -100, 5, 0, -100, 1, 1}, at::kLong);
  testing::expect_gradients_match(loss, {h, w, target, some_weights()});
  testing::expect_gradients_match(loss, {h, w, target, at::Tensor()});
  testing::expect_gradients_match(loss, {h.detach(), w, target, at::Tensor()});
  testing::expect_gradients_match(loss, {h, w.detach(), target, at::Tensor()});
  const at::Tensor one = at::tensor({2}, at::kLong);
  testing::expect_gradients_match(loss, {random_leaf({1, 4}, "h"), w, one, at::Tensor()});
  testing::expect_gradients_match(loss, {random_leaf({0, 4}, "h"), w, at::empty({0}, at::kLong), at::Tensor()});
}

TEST(LinearCrossEntropy, OnlyIgnoredRowsGiveZeroLossAndZeroGradients) {
  const at::Tensor h = random_leaf({3, 5}, "h"), w = random_leaf({kVocab, 5}, "w");
  const at::Tensor loss = linear_cross_entropy(h, w, at::full({3}, kIgnoredTarget, at::kLong), {});
  EXPECT_EQ(loss.item<double>(), 0.0);
  const auto grads = torch::autograd::grad({loss}, {h, w});
  EXPECT_TRUE(at::equal(grads[0], at::zeros({3, 5}, at::kDouble)));
  EXPECT_TRUE(at::equal(grads[1], at::zeros({kVocab, 5}, at::kDouble)));
}

TEST(LinearCrossEntropy, IgnoredRowsMayHoldAnything) {
  at::Tensor h = random_tensor({7, 5}, "h");
  const at::Tensor w = random_tensor({kVocab, 5}, "w");
  const double clean = linear_cross_entropy(h, w, some_targets(), {}).item<double>();
  h[1].fill_(NAN);
  EXPECT_EQ(linear_cross_entropy(h, w, some_targets(), {}).item<double>(), clean);
}

TEST(LinearCrossEntropy, ChunkSizeDoesNotChangeTheResult) {
  const at::Tensor h = random_leaf({7, 33}, "h"), w = random_leaf({kVocab, 33}, "w");
  std::vector<at::Tensor> losses, grad_h, grad_w;
  for (const int64_t chunk_bytes : {1, 2 * 4 * 37, 3 * 4 * 37 + 5, 1 << 20}) {
    const at::Tensor leaf_h = h.detach().to(at::kFloat).requires_grad_(true);
    const at::Tensor leaf_w = w.detach().to(at::kFloat).requires_grad_(true);
    losses.push_back(linear_cross_entropy(leaf_h, leaf_w, some_targets(), some_weights(), chunk_bytes));
    const auto grads = torch::autograd::grad({losses.back()}, {leaf_h, leaf_w});
    grad_h.push_back(grads[0]);
    grad_w.push_back(grads[1]);
  }
  for (size_t i = 1; i < losses.size(); ++i) {
    EXPECT_LT(testing::relative_difference(losses[i], losses[0]), 1e-6);
    EXPECT_LT(testing::relative_difference(grad_h[i], grad_h[0]), 1e-6);
    EXPECT_LT(testing::relative_difference(grad_w[i], grad_w[0]), 1e-6);
  }
}

TEST(LinearCrossEntropy, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  const auto loss = [](const Inputs& in) -> Outputs {
    return {linear_cross_entropy(in[0], in[1], some_targets(), some_weights())};
  };
  testing::expect_all_precisions(loss, {random_leaf({7, 64}, "h"), random_leaf({kVocab, 64}, "w")}, 1);
}

TEST(LinearCrossEntropy, LargeLogitsDoNotOverflow) {
  const at::Tensor h = at::full({1, 1}, 1.0, at::kFloat), w = at::tensor({1000.0F, -1000.0F, 999.0F}).unsqueeze(1);
  const double loss = linear_cross_entropy(h, w, at::tensor({2}, at::kLong), {}).item<double>();
  EXPECT_NEAR(loss, 1.0 + std::log1p(std::exp(-1.0)), 1e-6);
}

TEST(LinearCrossEntropy, TargetBeyondTheVocabularyIsNamed) {
  const at::Tensor h = at::ones({2, 3}), w = at::ones({5, 3});
  for (const int64_t bad : {5, -1}) {
    try {
      linear_cross_entropy(h, w, at::tensor({int64_t{0}, bad}, at::kLong), {});
      ADD_FAILURE() << "target " << bad << " was accepted";
    } catch (const c10::Error& error) {
      const std::string message = error.what_without_backtrace();
      EXPECT_NE(message.find("vocabulary of 5, got " + std::to_string(bad)), std::string::npos) << message;
    }
  }
}

TEST(LinearCrossEntropy, GradientsAreHandedOutOnce) {
  const at::Tensor h = random_leaf({3, 5}, "h"), w = random_tensor({kVocab, 5}, "w");
  const at::Tensor loss = linear_cross_entropy(h, w, at::tensor({1, 2, 3}, at::kLong), {});
  torch::autograd::grad({loss}, {h}, {}, /*retain_graph=*/true);
  EXPECT_THROW(torch::autograd::grad({loss}, {h}), c10::Error);
}

TEST(LinearCrossEntropy, LossHasTheSameBitsForEveryNumberOfThreads) {
  // One row longer than the grain of a parallel sum.
  const at::Tensor h = random_tensor({1, 2}, "h").to(at::kFloat), w = random_tensor({70001, 2}, "w").to(at::kFloat);
  const int threads = at::get_num_threads();
  std::vector<float> losses;
  for (const int count : {1, 2, 3}) {
    at::set_num_threads(count);
    losses.push_back(linear_cross_entropy(h, w, at::tensor({5}, at::kLong), {}).item<float>());
  }
  at::set_num_threads(threads);
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

TEST(ScoreCrossEntropy, CountsRowsWhoseFirstLargestLogitIsTheTarget) {
  // Logits are the rows of h: W is the identity.
  const at::Tensor w = at::eye(4, at::kFloat);
  const at::Tensor h =
      at::tensor({1.0F, 5.0F, 2.0F, 0.0F, 3.0F, 3.0F, 0.0F, 0.0F, 0.0F, 3.0F, 3.0F, 0.0F, 9.0F, 0.0F, 0.0F, 0.0F})
          .view({4, 4});
  const at::Tensor target = at::tensor({1, 0, 2, -100}, at::kLong);
  const CrossEntropyScores scores = score_cross_entropy(h, w, target, {}, /*chunk_bytes=*/32);
  EXPECT_EQ(scores.correct, 2);
  EXPECT_NEAR(scores.loss_sum, linear_cross_entropy(h, w, target, {}).item<double>(), 1e-6);
}

}  // namespace
}  // namespace asterism::ops
