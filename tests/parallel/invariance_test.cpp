#include <gtest/gtest.h>

#include "tests/parallel/shared_run.h"

// No layout changes the result: loss and every gradient of ranks that share the model, against one rank.
namespace asterism::parallel {
namespace {

using testing::SharedCase;
using testing::SharedResult;

struct Layout {
  int ranks;
  MeshRequest request;
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << layout.ranks << " ranks, expert " << layout.request.expert << ", shard " << layout.request.shard
             << ", replicate " << layout.request.replicate;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {1, {}},        {2, {1, 2, 1}}, {2, {2, 2, 1}}, {2, {2, 1, 2}}, {3, {3, 3, 1}}, {3, {1, 3, 1}}, {4, {1, 4, 1}},
      {4, {2, 4, 1}}, {4, {4, 4, 1}}, {4, {2, 2, 2}}, {4, {4, 1, 4}}, {8, {8, 8, 1}}, {8, {4, 2, 4}}, {8, {2, 4, 2}}};
  return all;
}

void expect_close(const SharedResult& actual, const SharedResult& expected, double tolerance) {
  EXPECT_NEAR(actual.loss, expected.loss, tolerance * std::abs(expected.loss));
  for (const auto& [name, gradient] : expected.gradients) {
    const auto found = actual.gradients.find(name);
    if (found == actual.gradients.end()) {
      ADD_FAILURE() << name << " has no gradient";
      continue;
    }
    const double scale = gradient.norm().item<double>();
    const double error = (found->second - gradient).norm().item<double>();
    // Sums of all tokens that nearly cancel: the parameters of hyper-connections (golden/hf README, tolerances).
    const bool cancels = name.ends_with("scale") || name.ends_with("base");
    EXPECT_LE(error, (cancels ? 10.0 : 1.0) * tolerance * scale + 1e-30) << name;
  }
  EXPECT_EQ(actual.gradients.size(), expected.gradients.size());
}

// One of each kind, for what concerns a kind only.
const std::vector<Layout>& some_layouts() {
  static const std::vector<Layout> some = {{2, {2, 2, 1}}, {3, {1, 3, 1}}, {4, {2, 2, 2}}, {8, {8, 8, 1}}};
  return some;
}

void check_all(const SharedCase& what, double tolerance, const std::vector<Layout>& chosen = some_layouts()) {
  const SharedResult expected = testing::run_alone(what);
  for (const Layout& layout : chosen) {
    SCOPED_TRACE(::testing::Message() << layout);
    expect_close(testing::run_shared(what, layout.ranks, layout.request), expected, tolerance);
  }
}

TEST(Invariance, FullFineTuning) {
  check_all({}, 1e-10, layouts());
}

TEST(Invariance, FullFineTuningKeepingActivations) {
  check_all({.recompute = model::Recompute::kNone}, 1e-10);
}

TEST(Invariance, FullFineTuningInSinglePrecision) {
  check_all({.type = at::kFloat}, 1e-5);
}

TEST(Invariance, Lora) {
  check_all({.lora = true}, 1e-10, layouts());
}

TEST(Invariance, LoraOnPackedWeights) {
  check_all({.type = at::kFloat, .lora = true, .packed = true}, 1e-5);
}

TEST(Invariance, ExpertsThatDoNotDivide) {
  check_all({.num_experts = 6}, 1e-10);
  check_all({.lora = true, .num_experts = 6}, 1e-10);
}

TEST(Invariance, MoreRanksThanMicroBatches) {
  check_all({.micro_batches = {{9, 4}, {6}}}, 1e-10);
}

TEST(Invariance, AMicroBatchWithoutATrainedToken) {
  check_all({.untrained_micro_batch = 1}, 1e-10);
}

TEST(Invariance, AllTokensToTheSameExperts) {
  check_all({.all_to_one_expert = true}, 1e-10);
}

// In strict mode one rank is a layout like any other, and all give the same bits.
void check_bits(SharedCase what, const std::vector<Layout>& chosen = some_layouts()) {
  what.strict = true;
  what.type = at::kFloat;
  const SharedResult expected = testing::run_shared(what, 1, {});
  for (const Layout& layout : chosen) {
    SCOPED_TRACE(::testing::Message() << layout);
    const SharedResult actual = testing::run_shared(what, layout.ranks, layout.request);
    EXPECT_EQ(actual.loss, expected.loss);
    for (const auto& [name, gradient] : expected.gradients) {
      EXPECT_TRUE(at::equal(actual.gradients.at(name), gradient)) << name;
    }
  }
}

TEST(Invariance, StrictModeGivesTheSameBits) {
  check_bits({}, layouts());
  check_bits({.lora = true});
  check_bits({.lora = true, .packed = true});
}

TEST(Invariance, RecomputationOnRanksGivesTheSameBits) {  // TC12: other rows arrived in the second pass
  for (const bool lora : {false, true}) {
    SharedCase what{.type = at::kFloat, .lora = lora};
    const SharedResult recomputed = testing::run_shared(what, 4, {2, 2, 2});
    for (const model::Recompute mode : {model::Recompute::kSelective, model::Recompute::kNone}) {
      what.recompute = mode;
      const SharedResult kept = testing::run_shared(what, 4, {2, 2, 2});
      EXPECT_EQ(recomputed.loss, kept.loss);
      ASSERT_EQ(recomputed.gradients.size(), kept.gradients.size());
      for (const auto& [name, gradient] : kept.gradients) {
        EXPECT_TRUE(at::equal(recomputed.gradients.at(name), gradient)) << name;
      }
    }
  }
}

}  // namespace
}  // namespace asterism::parallel
