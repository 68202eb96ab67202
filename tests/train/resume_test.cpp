#include "asterism/train/resume.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

std::string error_of(const checkpoint::TrainState& state, AdamW& optimizer, const nlohmann::ordered_json& identity) {
  try {
    restore_state(state, optimizer, identity, "step-00000003");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

struct Fixture {
  model::Model model = testing::tiny_model(at::kFloat);
  AdamW optimizer{full_parameters(model, {}), {}};
  nlohmann::ordered_json identity = {{"seed", 1}};
};

TEST(TrainState, HasMomentsOfEveryParameterAlsoOfUnusedOnes) {
  // TC13: nothing had a gradient yet; the state is complete, with zeros, and loads.
  Fixture setup;
  const auto state = capture_state(3, setup.optimizer, setup.identity);
  EXPECT_EQ(state.tensors.size(), 3 * setup.optimizer.parameters().size());
  EXPECT_EQ(error_of(state, setup.optimizer, setup.identity), "");
}

TEST(TrainState, RestoresWeightsMomentsAndCounters) {
  Fixture setup, other;
  {
    const at::NoGradGuard no_grad;
    setup.optimizer.parameters()[2].value.fill_(7.0f);
    setup.optimizer.states()[2].exp_avg.fill_(8.0f);
    setup.optimizer.states()[2].updates = 9;
  }
  const auto state = capture_state(3, setup.optimizer, setup.identity);
  EXPECT_EQ(restore_state(state, other.optimizer, other.identity, "x"), 3);
  EXPECT_TRUE(at::equal(other.optimizer.parameters()[2].value, setup.optimizer.parameters()[2].value));
  EXPECT_TRUE(at::equal(other.optimizer.states()[2].exp_avg, setup.optimizer.states()[2].exp_avg));
  EXPECT_EQ(other.optimizer.states()[2].updates, 9);
}

TEST(TrainState, NamesWhatDoesNotFit) {
  Fixture setup;
  const auto good = capture_state(3, setup.optimizer, setup.identity);
  auto state = good;
  state.tensors.erase(state.tensors.begin());
  EXPECT_NE(error_of(state, setup.optimizer, setup.identity).find("is missing"), std::string::npos);
  state = good;
  state.tensors[1].tensor = at::zeros({3});
  EXPECT_NE(error_of(state, setup.optimizer, setup.identity).find("expected"), std::string::npos);
  state = good;
  state.tensors.push_back({"param.extra", at::zeros({1}), {}});
  EXPECT_NE(error_of(state, setup.optimizer, setup.identity).find("param.extra"), std::string::npos);
  EXPECT_NE(error_of(good, setup.optimizer, {{"seed", 2}}).find("seed"), std::string::npos);
}

}  // namespace
}  // namespace asterism::train
