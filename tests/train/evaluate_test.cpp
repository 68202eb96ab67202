#include "asterism/train/evaluate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

TEST(EvaluateRows, IsTheMeanOverTrainedTokensOfAllRows) {
  const model::Model model = testing::tiny_model(at::kFloat);
  const model::TokenBatch batch = testing::tiny_batch(model.config, {12, 5});
  data::PackedRow first, second;
  for (int64_t t = 0; t < 17; ++t) {
    data::PackedRow& row = t < 12 ? first : second;
    row.ids.push_back(batch.id_T[t].item<int64_t>());
    row.weights.push_back(1.0f);
  }
  first.lengths = {12};
  second.lengths = {5};
  Evaluation evaluation;
  evaluate_rows(model, {first, second}, at::kFloat, 16, evaluation);
  const at::NoGradGuard no_grad;
  const double sum = model::forward_loss(model, batch, {}).token_loss.item<double>();
  EXPECT_EQ(evaluation.tokens, 15);
  EXPECT_EQ(evaluation.rows, 2);
  EXPECT_NEAR(evaluation.loss(), sum / 15, 1e-5);
  EXPECT_NEAR(evaluation.perplexity(), std::exp(sum / 15), 1e-3);
  const at::Tensor best = model::forward_logits(model, batch, {}).argmax(1);
  EXPECT_EQ(evaluation.correct, best.eq(batch.target_T).sum().item<int64_t>());
}

}  // namespace
}  // namespace asterism::train
