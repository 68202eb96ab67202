#include "asterism/train/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

TEST(SampleToken, GreedyTakesTheMostProbable) {
  const at::Tensor logp = at::tensor({0.1, 0.6, 0.3}, at::kDouble).log();
  EXPECT_EQ(sample_token(logp, 0.0, 1.0, 0.99), 1);
}

TEST(SampleToken, FollowsTheDistributionInsideTheTopPSet) {
  const at::Tensor logp = at::tensor({0.1, 0.6, 0.3}, at::kDouble).log();
  EXPECT_EQ(sample_token(logp, 1.0, 1.0, 0.59), 1);
  EXPECT_EQ(sample_token(logp, 1.0, 1.0, 0.61), 2);
  EXPECT_EQ(sample_token(logp, 1.0, 1.0, 0.95), 0);
  // 0.6 + 0.3 reach 0.7: token 0 is out, the rest share the whole interval.
  EXPECT_EQ(sample_token(logp, 1.0, 0.7, 0.999), 2);
  EXPECT_EQ(sample_token(logp, 1.0, 0.7, 0.65), 1);
  EXPECT_EQ(sample_token(logp, 1.0, 0.0, 0.999), 1);
}

TEST(Generate, GreedyTokensAreTheArgmaxOfTheWholeSequence) {
  const model::Model model = testing::tiny_model(at::kFloat);
  GenerateOptions options;
  options.max_tokens = 6;
  std::vector<int64_t> ids = {3, 14, 15};
  for (const GeneratedToken& token : generate(model, ids, options)) {
    const at::Tensor all = at::tensor(ids, at::kLong);
    const at::NoGradGuard no_grad;
    const at::Tensor logits =
        model::forward_logits(model, model::make_token_batch(all, all, {static_cast<int64_t>(ids.size())}), {});
    const at::Tensor last = at::log_softmax(logits[-1].to(at::kDouble), 0);
    EXPECT_EQ(token.id, last.argmax().item<int64_t>());
    EXPECT_NEAR(token.log_probability, last.max().item<double>(), 1e-5);
    ids.push_back(token.id);
  }
}

TEST(Generate, StopsAtAStopTokenAndRepeatsForTheSameSeed) {
  const model::Model model = testing::tiny_model(at::kFloat);
  GenerateOptions options;
  options.max_tokens = 12;
  options.temperature = 1.0;
  options.seed = 4;
  const auto first = generate(model, {1, 2}, options), second = generate(model, {1, 2}, options);
  ASSERT_EQ(first.size(), 12u);
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].id, second[i].id);
  options.stop_ids = {first[3].id};
  EXPECT_LE(generate(model, {1, 2}, options).size(), 4u);
  int64_t calls = 0;
  generate(model, {1, 2}, options, [&](const GeneratedToken&) { return ++calls < 2; });
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace asterism::train
