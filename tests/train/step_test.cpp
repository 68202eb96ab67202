#include "asterism/train/step.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

data::PackedRow row_of(const std::vector<int64_t>& lengths, uint64_t seed) {
  data::PackedRow row;
  row.lengths = lengths;
  const RandomStream stream(seed, "row");
  for (const int64_t length : lengths) {
    for (int64_t t = 0; t < length; ++t) {
      row.ids.push_back(static_cast<int64_t>(stream.below(97, row.ids.size())));
      row.weights.push_back(t % 3 == 1 ? 0.0f : 1.0f);
    }
  }
  return row;
}

struct Outcome {
  StepResult result;
  std::vector<std::pair<std::string, at::Tensor>> leaves;
};

Outcome run(const std::vector<data::PackedRow>& rows, int64_t micro_batch) {
  Outcome outcome;
  model::Model model = testing::tiny_model(at::kDouble);
  outcome.leaves = testing::record_gradients(model);
  StepSettings settings;
  settings.forward.compute = at::kDouble;
  settings.forward.balance = settings.forward.indexer_kl = true;
  settings.loss.mtp = true;
  settings.mtp_weight = 0.3;
  settings.balance_weight = 0.01;
  settings.micro_batch = micro_batch;
  outcome.result = run_step(model, rows, settings);
  return outcome;
}

TEST(RunStep, SplittingTheRowsChangesNeitherLossNorGradients) {
  // TC4 and TC5 on one rank: rows of very different trained-token counts, auxiliary losses included.
  const std::vector<data::PackedRow> rows = {row_of({19}, 1), row_of({4, 3}, 2), row_of({9, 1, 8}, 3), row_of({2}, 4)};
  const Outcome whole = run(rows, 4);
  for (const int64_t micro_batch : {1, 2, 3}) {
    const Outcome split = run(rows, micro_batch);
    EXPECT_NEAR(split.result.loss, whole.result.loss, 1e-12);
    EXPECT_NEAR(split.result.mtp_loss, whole.result.mtp_loss, 1e-12);
    EXPECT_NEAR(split.result.balance_loss, whole.result.balance_loss, 1e-12);
    EXPECT_NEAR(split.result.indexer_loss, whole.result.indexer_loss, 1e-12);
    EXPECT_TRUE(at::equal(split.result.expert_load_LE, whole.result.expert_load_LE));
    for (size_t i = 0; i < whole.leaves.size(); ++i) {
      const at::Tensor a = split.leaves[i].second.grad(), b = whole.leaves[i].second.grad();
      const double top = std::max(1e-3, b.abs().max().item<double>());
      EXPECT_LE((a - b).abs().max().item<double>(), 1e-10 * top) << whole.leaves[i].first;
    }
  }
}

TEST(RunStep, CountsExpertLoadOncePerStep) {
  // TC12b: recomputation runs the routers twice; the load is counted once.
  const Outcome outcome = run({row_of({16}, 1)}, 1);
  EXPECT_EQ(outcome.result.expert_load_LE.sum().item<int64_t>(), 5 * 16 * 2);
}

TEST(RunStep, TokenWeightsScaleTheirLossAndGradient) {
  data::PackedRow row = row_of({6}, 1);
  for (float& weight : row.weights) weight = 1.0f;
  const Outcome plain = run({row}, 1);
  for (float& weight : row.weights) weight = 0.5f;
  const Outcome half = run({row}, 1);
  EXPECT_NEAR(half.result.loss, 0.5 * plain.result.loss, 1e-7);
  EXPECT_EQ(half.result.counts.trained_tokens, 5);
}

TEST(RunStep, AStepWithoutATrainedTokenIsAnInputError) {
  data::PackedRow row = row_of({6}, 1);
  for (float& weight : row.weights) weight = 0.0f;
  EXPECT_THROW(run({row}, 1), InputError);
}

TEST(RunStep, ANonFiniteLossStopsWithStepAndAdvice) {
  model::Model model = testing::tiny_model(at::kFloat);
  model.weights.lm_head.fill_(NAN);
  StepSettings settings;
  settings.forward.step = 41;
  try {
    run_step(model, {row_of({6}, 1)}, settings);
    FAIL();
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("step 41"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("optimizer.lr"), std::string::npos) << error.what();
  }
}

TEST(ExpertLoad, ReportsSpreadAndDeadExperts) {
  const at::Tensor even = at::full({2, 4}, 5, at::kLong);
  EXPECT_EQ(expert_load_report(even).std, 0.0);
  const at::Tensor skewed = at::tensor({8, 0, 0, 0}, at::kLong).view({1, 4});
  EXPECT_NEAR(expert_load_report(skewed).std, std::sqrt(3.0), 1e-12);
  EXPECT_EQ(expert_load_report(skewed).dead_experts, 3);
  const at::Tensor two = at::tensor({8, 0, 0, 0, 1, 3, 2, 2}, at::kLong).view({2, 4});
  EXPECT_EQ(expert_load_report(two).largest_L, (std::vector<double>{4.0, 1.5}));
}

}  // namespace
}  // namespace asterism::train
