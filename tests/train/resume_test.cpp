#include "asterism/train/resume.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

using testing::error_of;

struct Fixture {
  model::Model model = testing::tiny_model(at::kFloat);
  AdamW optimizer{full_parameters(model, {}), {}};
  std::vector<Parameter> buffers = full_buffers(model);
  RunRecord record{.recipe = {{"seed", "1"}, {"optimizer.lr", "0.1"}}, .base = {{"weights", "abc"}, {"config", "def"}}};

  checkpoint::TrainState capture(int64_t step) const { return capture_state(step, optimizer, buffers, record); }
  int64_t restore(const checkpoint::TrainState& state) {
    return restore_state(state, optimizer, buffers, record, "step-00000003");
  }
  std::string error(const checkpoint::TrainState& state) {
    return error_of<InputError>([&] { restore(state); });
  }
  void expect_error(const checkpoint::TrainState& state, const std::string& fragment) {
    const std::string message = error(state);
    EXPECT_NE(message.find(fragment), std::string::npos) << message;
    EXPECT_NE(message.find("step-00000003"), std::string::npos) << message;
  }
};

TEST(TrainState, HasMomentsOfEveryParameterAlsoOfUnusedOnes) {
  // TC13: nothing had a gradient yet; the state is complete, with zeros, and loads.
  Fixture setup;
  const auto state = setup.capture(3);
  EXPECT_EQ(state.tensors.size(), 3 * setup.optimizer.parameters().size() + setup.buffers.size());
  for (const auto& named : state.tensors) {
    const bool moment = named.name.starts_with("exp_avg");
    EXPECT_FALSE(moment && named.tensor.any().item<bool>()) << named.name;
  }
  EXPECT_EQ(setup.restore(state), 3);
}

TEST(TrainState, OfFullFineTuningHoldsTablesAndBiases) {
  // N1: a state without them sends every token of a hash layer to expert 0.
  Fixture setup;
  std::set<std::string> names;
  for (const auto& named : setup.capture(3).tensors) names.insert(named.name);
  size_t tables = 0, biases = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(setup.model.config)) {
    tables += spec.role == model::TensorRole::kTable ? 1 : 0;
    biases += spec.role == model::TensorRole::kRouterBias ? 1 : 0;
    EXPECT_EQ(names.contains("buffer." + spec.name), is_buffer(spec)) << spec.name;
  }
  EXPECT_GT(tables, 0u);
  EXPECT_GT(biases, 0u);
}

TEST(TrainState, RestoresWeightsMomentsCountersAndBuffers) {
  Fixture setup, other;
  {
    const at::NoGradGuard no_grad;
    setup.optimizer.parameters()[2].value.fill_(7.0f);
    setup.optimizer.states()[2].exp_avg.fill_(8.0f);
    setup.optimizer.states()[2].exp_avg_sq.fill_(9.0f);
    setup.optimizer.states()[2].updates = 9;
    setup.buffers[0].value.fill_(1);
  }
  EXPECT_EQ(other.restore(setup.capture(3)), 3);
  EXPECT_TRUE(at::equal(other.optimizer.parameters()[2].value, setup.optimizer.parameters()[2].value));
  EXPECT_TRUE(at::equal(other.optimizer.states()[2].exp_avg, setup.optimizer.states()[2].exp_avg));
  EXPECT_TRUE(at::equal(other.optimizer.states()[2].exp_avg_sq, setup.optimizer.states()[2].exp_avg_sq));
  EXPECT_EQ(other.optimizer.states()[2].updates, 9);
  // The model itself sees the buffer, not only the list.
  int64_t found = 0;
  model::for_each_tensor(other.model.config, other.model.weights, [&](const auto& spec, at::Tensor& tensor) {
    if (spec.name != other.buffers[0].name) return;
    EXPECT_TRUE(tensor.eq(1).all().template item<bool>());
    ++found;
  });
  EXPECT_EQ(found, 1);
}

TEST(TrainState, IsASnapshotThatTrainingDoesNotReach) {
  Fixture setup;
  const auto state = setup.capture(3);
  const at::Tensor before = state.tensors[0].tensor.clone();
  {
    const at::NoGradGuard no_grad;
    for (const Parameter& parameter : setup.optimizer.parameters()) parameter.value.detach().add_(1.0);
    for (AdamW::State& moments : setup.optimizer.states()) moments.exp_avg.add_(1.0);
    for (const Parameter& buffer : setup.buffers) buffer.value.detach().add_(1);
  }
  EXPECT_TRUE(at::equal(state.tensors[0].tensor, before));
  EXPECT_FALSE(state.tensors[1].tensor.any().item<bool>());
  setup.restore(state);
  EXPECT_TRUE(at::equal(setup.optimizer.parameters()[0].value.detach(), before));
}

TEST(TrainState, NamesWhatDoesNotFit) {
  Fixture setup;
  const auto good = setup.capture(3);
  auto state = good;
  state.tensors.erase(state.tensors.begin());
  setup.expect_error(state, "is missing");
  state = good;
  state.tensors[1].tensor = at::zeros({3});
  setup.expect_error(state, "expected");
  state = good;
  state.tensors.push_back({"param.extra", at::zeros({1}), {}});
  setup.expect_error(state, "param.extra");
  state = good;
  state.info["updates"].erase(setup.optimizer.parameters()[0].name);
  setup.expect_error(state, "no update count for " + setup.optimizer.parameters()[0].name);
  state = good;
  state.info.erase("base");
  setup.expect_error(state, "no object base");
}

TEST(TrainState, OfAnotherRecipeOrBaseIsRefused) {
  Fixture setup;
  const auto state = setup.capture(3);
  setup.record.recipe["seed"] = "2";
  setup.expect_error(state, "seed: \"1\" in the checkpoint, \"2\" in the recipe");
  setup.record.recipe["seed"] = "1";
  setup.record.recipe["optimizer.lr"] = "0.2";  // may change
  setup.restore(state);
  setup.record.base["weights"] = "abd";
  setup.expect_error(state, "weights: \"abc\" then, \"abd\" now");
}

}  // namespace
}  // namespace asterism::train
