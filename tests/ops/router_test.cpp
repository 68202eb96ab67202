#include "asterism/ops/router.h"

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

at::Tensor row(std::vector<double> values) {
  return at::tensor(values, at::kDouble).unsqueeze(0);
}
at::Tensor ids(std::vector<int64_t> values) {
  return at::tensor(values, at::kLong).unsqueeze(0);
}

// log s as a function of the logit, exact to fp64 everywhere: log(log1p(e^l)) / 2 with the first term of the series
// below -30.
double log_score(double logit) {
  if (logit > 30) return std::log(logit) / 2;
  return (logit < -30 ? logit : std::log(std::log1p(std::exp(logit)))) / 2;
}

const at::Tensor kLogits = row({0, 1, -1, 2});

TEST(Router, BiasChoosesButDoesNotWeigh) {
  EXPECT_LE(relative_difference(router_scores(kLogits), row({0.832555, 1.145976, 0.559698, 1.458399})), 1e-6);
  const at::Tensor bias = at::tensor({0.0, 0.0, 1.0, 0.0}, at::kDouble);
  const at::Tensor chosen = choose_experts(kLogits, bias, 2);
  EXPECT_TRUE(at::equal(chosen, ids({2, 3})));
  EXPECT_LE(relative_difference(router_weights(kLogits, chosen, 1.5), row({0.416009, 1.083991})), 1e-6);
}

TEST(Router, ReplayedChoicesKeepTheScoreFunction) {
  EXPECT_LE(relative_difference(router_weights(kLogits, ids({2, 3}), 1.5), row({0.416009, 1.083991})), 1e-6);
}

TEST(Router, BiasIsComparedInFp32ForBf16Logits) {
  const at::Tensor logits = at::zeros({1, 2}, at::kBFloat16), bias = at::tensor({6.90f, 6.91f});
  EXPECT_EQ(choose_experts(logits, bias, 1).item<int64_t>(), 1);
  EXPECT_EQ(router_scores(logits).scalar_type(), at::kFloat);
}

TEST(Router, TiesGoToTheSmallerIndexAndIdsAscend) {
  const at::Tensor logits = at::tensor({1.0f, 3.0f, 2.0f, 3.0f, 2.0f, 3.0f}).unsqueeze(0), bias = at::zeros({6});
  EXPECT_TRUE(at::equal(choose_experts(logits, bias, 2), ids({1, 3})));
  EXPECT_TRUE(at::equal(choose_experts(logits, bias, 4), ids({1, 2, 3, 5})));
  EXPECT_TRUE(at::equal(choose_experts(logits, bias, 6), ids({0, 1, 2, 3, 4, 5})));
  EXPECT_TRUE(at::equal(choose_experts(at::zeros({1, 6}), bias, 3), ids({0, 1, 2})));
}

TEST(Router, NotANumberIsChosenLastAndNeverTwice) {
  const at::Tensor logits = at::tensor({NAN, 1.0f, NAN, 2.0f}).unsqueeze(0);
  EXPECT_TRUE(at::equal(choose_experts(logits, at::zeros({4}), 3), ids({0, 1, 3})));
}

TEST(Router, ManyRowsAgreeWithASort) {
  const at::Tensor logits = random_tensor({200, 16}, "logits", 3.0), bias = random_tensor({16}, "bias");
  const at::Tensor order = (router_scores(logits) + bias).argsort(/*stable=*/true, 1, /*descending=*/true);
  const at::Tensor expected = std::get<0>(order.narrow(1, 0, 5).sort(1));
  EXPECT_TRUE(at::equal(choose_experts(logits, bias, 5), expected));
}

TEST(Router, HashTableOfEitherWidthIsLookedUpAsIs) {
  const at::Tensor table = at::tensor({3, 1, 0, 0, 383, 257}, at::kLong).view({3, 2});
  const at::Tensor tokens = at::tensor({2, 0, 1, 2}, at::kLong);
  const at::Tensor expected = at::tensor({383, 257, 3, 1, 0, 0, 383, 257}, at::kLong).view({4, 2});
  EXPECT_TRUE(at::equal(hash_experts(table, tokens), expected));
  EXPECT_TRUE(at::equal(hash_experts(table.to(at::kInt), tokens.to(at::kInt)), expected));
  EXPECT_EQ(hash_experts(table, at::empty({0}, at::kLong)).size(0), 0);
  EXPECT_THROW(hash_experts(table, at::tensor({3}, at::kLong)), c10::Error);
  EXPECT_THROW(hash_experts(table.to(at::kFloat), tokens), c10::Error);
}

TEST(Router, AnExpertNamedTwiceCountsTwiceInTheSum) {
  const at::Tensor weights = router_weights(kLogits, ids({1, 1, 3}), 1.0);
  const double one = 1.145976, three = 1.458399, sum = 2 * one + three;
  EXPECT_LE(relative_difference(weights, row({one / sum, one / sum, three / sum})), 1e-6);
}

TEST(Router, WeightGradientsMatchFiniteDifferences) {
  const at::Tensor chosen = at::tensor({0, 2, 4, 4, 4, 1, 3, 0, 1}, at::kLong).view({3, 3});  // row 1 names 4 twice
  expect_gradients_match([&](const Inputs& in) -> Outputs { return {router_weights(in[0], chosen, 2.5)}; },
                         {random_tensor({3, 5}, "logits", 2.0).requires_grad_()});
  // Around the border of the stable branch.
  expect_gradients_match([&](const Inputs& in) -> Outputs { return {router_weights(in[0], chosen, 2.5)}; },
                         {(random_tensor({3, 5}, "logits", 1.0) - 20.0).requires_grad_()});
  expect_gradients_match(
      [&](const Inputs& in) -> Outputs {
        return {router_weights(in[0], at::empty({0, 3}, at::kLong), 2.5)};
      },
      {at::empty({0, 5}, at::kDouble).requires_grad_()});
}

TEST(Router, ExtremeLogitsAgreeWithTheAnalyticForm) {
  const at::Tensor cotangent = random_tensor({1, 2}, "cotangent0");  // what outputs_and_gradients contracts with
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    // At the border of the branch exp(l / 2) is off by 5e-10, relative.
    const double tolerance = type == at::kDouble ? 1e-9 : 1e-5;
    for (double logit = -200; logit <= 200; logit += 2.5) {
      const Outputs got = outputs_and_gradients(
          [&](const Inputs& in) -> Outputs {
            return {router_weights(in[0], ids({0, 1}), 1.0)};
          },
          {row({logit, logit - 1}).to(type)});
      const double score[] = {std::exp(log_score(logit)), std::exp(log_score(logit - 1))};
      const double sum = score[0] + score[1] + 1e-20;
      double contraction = 0;
      for (int i = 0; i < 2; ++i) contraction += cotangent[0][i].item<double>() * score[i] / sum;
      for (int i = 0; i < 2; ++i) {
        const double slope = 1 / (1 + std::exp(i - logit)) / (2 * score[i]);
        const double grad = slope / sum * (cotangent[0][i].item<double>() - contraction);
        EXPECT_NEAR(got[0][0][i].item<double>(), score[i] / sum, tolerance) << type << " " << logit;
        EXPECT_NEAR(got[1][0][i].item<double>(), grad, tolerance) << type << " " << logit;
      }
    }
  }
}

TEST(Router, ScoresNeverUnderflowToNothingInFp32) {
  for (double logit = -170; logit <= 200; logit += 5) {
    const double score = router_scores(row({logit}).to(at::kFloat)).item<double>();
    EXPECT_NEAR(score / std::exp(log_score(logit)), 1.0, 1e-5) << logit;
  }
}

// The direct formula, document by document, for autograd.
at::Tensor direct_balance_loss(const at::Tensor& logits, const at::Tensor& chosen,
                               const std::vector<int64_t>& lengths) {
  const int64_t num_experts = logits.size(1), k = chosen.size(1);
  at::Tensor loss = at::zeros({}, logits.options());
  int64_t start = 0;
  for (const int64_t length : lengths) {
    const at::Tensor score = at::sqrt(at::softplus(logits.narrow(0, start, length)));
    const at::Tensor share = (score / score.sum(1, true)).mean(0);
    const at::Tensor counts = at::bincount(chosen.narrow(0, start, length).reshape({-1}), {}, num_experts);
    const double factor = static_cast<double>(num_experts) / static_cast<double>(k * length);
    loss = loss + (counts.to(at::kDouble) * factor * share).sum();
    start += length;
  }
  return loss;
}

TEST(BalanceLoss, MatchesTheDirectFormulaPerDocument) {
  const std::vector<int64_t> lengths{4, 1, 6};
  const at::Tensor logits = random_tensor({11, 5}, "logits", 2.0);
  const at::Tensor chosen = choose_experts(logits, random_tensor({5}, "bias"), 2);
  const Documents documents = make_documents(lengths);
  const Outputs got = outputs_and_gradients(
      [&](const Inputs& in) -> Outputs { return {balance_loss(in[0], chosen, documents)}; }, {logits});
  const Outputs expected = outputs_and_gradients(
      [&](const Inputs& in) -> Outputs { return {direct_balance_loss(in[0], chosen, lengths)}; }, {logits});
  EXPECT_LE(relative_l2(got[0], expected[0]), 1e-12);
  EXPECT_LE(relative_l2(got[1], expected[1]), 1e-12);
  expect_gradients_match([&](const Inputs& in) -> Outputs { return {balance_loss(in[0], chosen, documents)}; },
                         {logits.requires_grad_()});
}

TEST(BalanceLoss, IsOneForUniformRouting) {
  const at::Tensor chosen = at::tensor({0, 1, 2, 3}, at::kLong).view({4, 1});
  const at::Tensor loss = balance_loss(at::zeros({4, 4}, at::kDouble), chosen, make_documents({4}));
  EXPECT_NEAR(loss.item<double>(), 1.0, 1e-15);
}

TEST(BalanceLoss, NoTokensAndUnderflowGiveFiniteGradients) {
  const auto none = outputs_and_gradients(
      [](const Inputs& in) -> Outputs {
        return {balance_loss(in[0], at::empty({0, 2}, at::kLong), make_documents({}))};
      },
      {at::empty({0, 3})});
  EXPECT_EQ(none[0].item<float>(), 0.0f);
  EXPECT_EQ(none[1].sizes(), at::IntArrayRef({0, 3}));
  const auto low = outputs_and_gradients(
      [](const Inputs& in) -> Outputs {
        return {balance_loss(in[0], ids({0, 1}), make_documents({1}))};
      },
      {at::full({1, 3}, -1000.0f)});
  EXPECT_TRUE(at::isfinite(low[0]).item<bool>() && at::isfinite(low[1]).all().item<bool>());
}

TEST(Router, LowerPrecisionStaysClose) {
  const at::Tensor logits = random_tensor({30, 8}, "logits", 2.0);
  const at::Tensor chosen = choose_experts(logits, at::zeros({8}, at::kDouble), 3);
  const Documents documents = make_documents({13, 17});
  const auto both = [&](const Inputs& in) -> Outputs {
    return {router_weights(in[0], chosen, 1.5), balance_loss(in[0], chosen, documents)};
  };
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor low = logits.to(type);
    const Outputs got = outputs_and_gradients(both, {low}),
                  expected = outputs_and_gradients(both, {low.to(at::kDouble)});
    EXPECT_EQ(got[0].scalar_type(), at::kFloat);
    EXPECT_LE(relative_l2(got[0], expected[0]), 1e-5);
    EXPECT_LE(relative_l2(got[1], expected[1]), 1e-5);
    EXPECT_EQ(got[2].scalar_type(), type);
    EXPECT_LE(relative_l2(got[2], expected[2]), type == at::kFloat ? 2e-5 : 1e-2);
  }
}

TEST(Router, RepeatsAndThreadsGiveTheSameBits) {
  const at::Tensor logits = random_tensor({400, 32}, "logits", 2.0).to(at::kFloat);
  const Documents documents = make_documents({150, 250});
  const auto compute = [&] {
    const at::Tensor chosen = choose_experts(logits, at::zeros({32}), 4);
    Outputs all = outputs_and_gradients(
        [&](const Inputs& in) -> Outputs {
          return {router_weights(in[0], chosen, 1.5), balance_loss(in[0], chosen, documents)};
        },
        {logits});
    all.push_back(chosen);
    return all;
  };
  asterism::testing::expect_threads_do_not_matter(compute);
  const Outputs first = compute(), second = compute();
  for (size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << "tensor " << i;
}

TEST(Router, BadChoicesAreRefused) {
  EXPECT_THROW(router_weights(kLogits, ids({0, 4}), 1.0), c10::Error);
  EXPECT_THROW(router_weights(kLogits, ids({-1, 0}), 1.0), c10::Error);
  EXPECT_THROW(choose_experts(kLogits, at::zeros({4}), 5), c10::Error);
  EXPECT_THROW(choose_experts(kLogits, at::zeros({3}), 2), c10::Error);
  EXPECT_THROW(balance_loss(kLogits, ids({0, 1}), make_documents({2})), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
