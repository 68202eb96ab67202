#include "asterism/model/token_batch.h"

#include <gtest/gtest.h>

namespace asterism::model {
namespace {

TEST(TokenBatch, TargetsNeverCrossADocument) {
  const at::Tensor ids = at::tensor({1, 2, 3, 4, 5, 6}, at::kLong);
  const at::Tensor labels = at::tensor({1, -100, 3, 4, 5, 6}, at::kLong);
  const TokenBatch batch = make_token_batch(ids, labels, {3, 1, 2});
  EXPECT_TRUE(at::equal(batch.target_T, at::tensor({-100, 3, -100, -100, 6, -100}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.mtp_target_T, at::tensor({3, -100, -100, -100, -100, -100}, at::kLong)));
  EXPECT_EQ(batch.trained_tokens(), 2);
  EXPECT_EQ(batch.mtp_trained_tokens(), 1);
}

TEST(TokenBatch, WeightsMoveWithTheirTargets) {
  const at::Tensor ids = at::tensor({1, 2, 3}, at::kLong);
  const at::Tensor weights = at::tensor({9.0f, 0.5f, 2.0f});
  const TokenBatch batch = make_token_batch(ids, ids, {3}, weights);
  EXPECT_TRUE(at::equal(batch.weight_T, at::tensor({0.5f, 2.0f, 0.0f})));
  EXPECT_TRUE(at::equal(batch.mtp_weight_T, at::tensor({2.0f, 0.0f, 0.0f})));
}

TEST(TokenBatch, RefusesLengthsThatDoNotAddUp) {
  const at::Tensor ids = at::tensor({1, 2, 3}, at::kLong);
  EXPECT_THROW(make_token_batch(ids, ids, {2}), c10::Error);
  EXPECT_THROW(make_token_batch(ids, ids.slice(0, 1), {3}), c10::Error);
}

}  // namespace
}  // namespace asterism::model
