#include "asterism/model/mtp.h"

#include <gtest/gtest.h>

#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

at::Tensor hidden_of(const Model& model, const TokenBatch& batch) {
  ForwardOptions options;
  options.compute = at::kDouble;
  const at::NoGradGuard no_grad;
  const auto context = make_stream_context(model.config, batch, options);
  LossSums sums;
  const at::Tensor trunk = forward_trunk(model, context, Recompute::kBlocks, sums);
  return mtp_hidden(model, trunk, context, Recompute::kBlocks, sums);
}

TEST(Mtp, SeesTheNextTokenAndNothingBeyondItOrItsDocument) {
  const Model model = testing::tiny_model(at::kDouble);
  const TokenBatch batch = testing::tiny_batch(model.config, {9, 8});
  const at::Tensor before = hidden_of(model, batch);
  for (int64_t j = 2; j < 17; ++j) {
    TokenBatch changed = batch;
    changed.id_T = batch.id_T.clone();
    changed.id_T[j] = (changed.id_T[j].item<int64_t>() + 1) % model.config.vocab_size;
    const at::Tensor gap = (hidden_of(model, changed) - before).abs().amax(1);
    const int64_t begin = j < 9 ? 0 : 9;
    for (int64_t t = begin; t + 1 < j; ++t) EXPECT_LE(gap[t].item<double>(), 1e-12) << t << " sees " << j;
    // The next token is the block's input, except across a border.
    if (j != 9) {
      EXPECT_GT(gap[j - 1].item<double>(), 1e-9) << j;
    }
    const at::Tensor other = j < 9 ? gap.slice(0, 9, 17) : gap.slice(0, 0, 9);
    EXPECT_LE(other.max().item<double>(), 1e-12) << j;
  }
}

TEST(Mtp, NeedsAModelThatHasTheBlock) {
  Config config = testing::tiny_config();
  config.num_mtp_layers = 0;
  const Model model = testing::tiny_model(config, at::kFloat);
  LossOptions loss;
  loss.mtp = true;
  EXPECT_THROW(forward_loss(model, testing::tiny_batch(config, {5}), {}, loss), c10::Error);
}

}  // namespace
}  // namespace asterism::model
