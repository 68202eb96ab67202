#include "asterism/train/loop.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "asterism/checkpoint/train_state.h"
#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/model/lora.h"
#include "asterism/train/step.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

namespace fs = std::filesystem;

/// Token rows of 5 to 16 tokens.
std::string token_rows(int64_t count) {
  std::string lines;
  for (int64_t i = 0; i < count; ++i) {
    const RandomStream stream(static_cast<uint64_t>(i), "sample");
    nlohmann::json ids;
    const uint64_t length = 5 + stream.below(12, 999);
    for (uint64_t t = 0; t < length; ++t) ids.push_back(stream.below(97, t));
    lines += nlohmann::json{{"input_ids", ids}}.dump() + "\n";
  }
  return lines;
}

Recipe small_recipe() {
  Recipe recipe;
  recipe.name = "test";
  recipe.seed = 3;
  recipe.data.sequence_length = 24;
  recipe.train.batch = 4;
  recipe.train.micro_batch = 2;
  recipe.optimizer.lr = 3e-3;
  recipe.schedule.warmup_steps = 2;
  recipe.checkpoint.every = 2;
  recipe.log.tensorboard = false;
  return recipe;
}

struct FinishedRun {
  model::Model model;
  std::vector<Parameter> parameters;
  LoopSummary summary;
};

data::DataSet data_of(const Recipe& recipe, int64_t count) {
  static const testing::TemporaryFolder folder;
  const data::PreparationOptions preparation{.fit = {.sequence_length = recipe.data.sequence_length}};
  const std::vector<data::DataSource> sources = {{folder.write(text(count, ".jsonl"), token_rows(count))}};
  const data::DataSetOptions options{.seed = recipe.seed, .batch = recipe.train.batch};
  return data::DataSet(data::prepare_data(sources, preparation, {}), preparation.rows, preparation.fit, options);
}

FinishedRun run(const Recipe& recipe, const fs::path& folder, int64_t steps, int64_t stop_after = 1000) {
  FinishedRun result;
  result.model = testing::tiny_model(at::kFloat);
  if (recipe.lora) {
    model::attach_lora(result.model.config, result.model.weights, recipe.lora->config, recipe.seed);
    result.parameters = lora_parameters(result.model);
  } else {
    result.parameters = full_parameters(result.model, {});
  }
  const data::DataSet train_data = data_of(recipe, 30), eval_data = data_of(recipe, 3);
  const RunFolder run_folder(folder);
  run_folder.create();
  int64_t asked = 0;
  LoopInputs inputs{recipe, result.model, result.parameters, train_data, &eval_data, run_folder, steps};
  inputs.stop_requested = [&] { return ++asked >= stop_after; };
  result.summary = run_loop(inputs);
  return result;
}

std::vector<nlohmann::json> metrics_of(const fs::path& folder) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(folder / "metrics.jsonl");
  std::string line;
  while (std::getline(file, line)) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

TEST(Loop, AResumedRunIsTheUninterruptedRunBitForBit) {
  // TC16 in small: shuffled epochs, packing, accumulation, LoRA dropout, evaluation, rows read ahead; stopped after 4
  // of 9 steps.
  Recipe recipe = small_recipe();
  recipe.data.workers = 0;
  recipe.lora.emplace();
  recipe.lora->config.dropout = 0.1;
  recipe.lora->config.rank = 2;
  const testing::TemporaryFolder whole, parts;
  const FinishedRun straight = run(recipe, whole.path(), 9);
  recipe.data.workers = 3;
  const FinishedRun first = run(recipe, parts.path(), 9, 4);
  EXPECT_TRUE(first.summary.stopped);
  EXPECT_EQ(first.summary.last_step, 4);
  const FinishedRun second = run(recipe, parts.path(), 9);
  EXPECT_EQ(second.summary.first_step, 4);
  EXPECT_EQ(second.summary.last_step, 9);
  for (size_t i = 0; i < straight.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(straight.parameters[i].value, second.parameters[i].value)) << straight.parameters[i].name;
  }
  const auto a = metrics_of(whole.path()), b = metrics_of(parts.path());
  ASSERT_EQ(a.size(), 9u);
  ASSERT_EQ(b.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(b[i]["step"], i + 1);
    EXPECT_EQ(a[i]["loss"], b[i]["loss"]);
    EXPECT_EQ(a[i]["grad_norm"], b[i]["grad_norm"]);
    EXPECT_EQ(a[i]["lr"], b[i]["lr"]);
  }
}

TEST(Loop, MetricsHaveTheKeysOfTheInterface) {
  const testing::TemporaryFolder folder;
  run(small_recipe(), folder.path(), 2);
  const auto rows = metrics_of(folder.path());
  ASSERT_EQ(rows.size(), 2u);
  for (const char* key : {"step", "epoch", "loss", "tokens", "input_tokens", "rows", "lr", "grad_norm", "seconds",
                          "tokens_per_second", "peak_memory_bytes", "expert_load_std", "dead_experts"}) {
    EXPECT_TRUE(rows[0].contains(key)) << key;
  }
  EXPECT_TRUE(rows[1].contains("eval_loss"));
  EXPECT_EQ(rows[0]["rows"], 4);
}

TEST(Loop, KeepsTheNewestCheckpointsNamedByFinishedSteps) {
  // TC17: every 2, keep 2, 6 steps: 2 is deleted, 4 and 6 stay, latest names 6.
  const testing::TemporaryFolder folder;
  run(small_recipe(), folder.path(), 6);
  const checkpoint::StateFolder states(folder.path() / "checkpoints");
  EXPECT_EQ(states.steps(), (std::vector<int64_t>{4, 6}));
  std::ifstream latest(folder.path() / "checkpoints/latest");
  std::string name;
  latest >> name;
  EXPECT_EQ(name, "step-00000006");
}

TEST(Loop, RefusesToResumeAnotherRun) {
  const testing::TemporaryFolder folder;
  Recipe recipe = small_recipe();
  run(recipe, folder.path(), 2);
  recipe.seed = 4;
  try {
    run(recipe, folder.path(), 4);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("seed"), std::string::npos) << error.what();
  }
}

TEST(Loop, RefusesToResumeWithOtherData) {
  const testing::TemporaryFolder folder;
  const Recipe recipe = small_recipe();
  run(recipe, folder.path(), 2);
  model::Model model = testing::tiny_model(at::kFloat);
  const auto parameters = full_parameters(model, {});
  const data::DataSet other = data_of(recipe, 31);
  const RunFolder run_folder(folder.path());
  const LoopInputs inputs{recipe, model, parameters, other, nullptr, run_folder, 4};
  const std::string error = testing::error_of<InputError>([&] { run_loop(inputs); });
  EXPECT_NE(error.find("30 samples of"), std::string::npos) << error;
  EXPECT_NE(error.find("now they are 31"), std::string::npos) << error;
}

TEST(Loop, SameSeedGivesTheSameWeights) {
  // TC29 in one process.
  const testing::TemporaryFolder one, two;
  const FinishedRun a = run(small_recipe(), one.path(), 3), b = run(small_recipe(), two.path(), 3);
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(a.parameters[i].value, b.parameters[i].value)) << a.parameters[i].name;
  }
}

TEST(Loop, ANonFiniteGradientLeavesWeightsAndCheckpointAlone) {
  const testing::TemporaryFolder folder;
  Recipe recipe = small_recipe();
  run(recipe, folder.path(), 2);
  model::Model model = testing::tiny_model(at::kFloat);
  auto parameters = full_parameters(model, {});
  {
    const at::NoGradGuard no_grad;
    model.weights.layers[0].attention.attention.sinks.fill_(NAN);
  }
  recipe.checkpoint.resume = "never";
  const data::DataSet data = data_of(recipe, 30);
  const RunFolder run_folder(folder.path());
  const at::Tensor before = model.weights.lm_head.detach().clone();
  LoopInputs inputs{recipe, model, parameters, data, nullptr, run_folder, 4};
  EXPECT_THROW(run_loop(inputs), RunError);
  EXPECT_TRUE(at::equal(model.weights.lm_head, before));
  EXPECT_EQ(checkpoint::StateFolder(folder.path() / "checkpoints").steps(), (std::vector<int64_t>{2}));
}

TEST(Training, OverfitsOneBatch) {
  Recipe recipe = small_recipe();
  recipe.optimizer.lr = 1e-2;
  recipe.optimizer.weight_decay = 0.0;
  model::Model model = testing::tiny_model(at::kFloat);
  AdamW optimizer(full_parameters(model, {}), recipe.optimizer);
  const auto rows = data_of(recipe, 30).rows_of_step(0);
  StepSettings settings;
  settings.sequence_length = 24;
  settings.micro_batch = 4;
  settings.loss.recompute = model::Recompute::kNone;
  double loss = 0.0;
  for (int64_t step = 0; step < 150; ++step) {
    loss = run_step(model, rows, settings).loss;
    const GradientReport gradient = inspect_gradients(optimizer.parameters());
    optimizer.step(step < 100 ? 1e-2 : 3e-3, clip_factor(gradient.norm, 1.0));
  }
  EXPECT_LT(loss, 0.05);
}

TEST(Training, LoraOnEachGroupAloneLowersTheLoss) {
  for (const char* group : {"attention", "shared_experts", "experts"}) {
    Recipe recipe = small_recipe();
    model::Model model = testing::tiny_model(at::kFloat);
    model::LoraConfig lora;
    lora.rank = 4;
    lora.targets = {group};
    model::attach_lora(model.config, model.weights, lora, 1);
    AdamW optimizer(lora_parameters(model), recipe.optimizer);
    const auto rows = data_of(recipe, 30).rows_of_step(0);
    StepSettings settings;
    settings.sequence_length = 24;
    settings.micro_batch = 4;
    double first = 0.0, last = 0.0;
    for (int64_t step = 0; step < 25; ++step) {
      last = run_step(model, rows, settings).loss;
      if (step == 0) first = last;
      optimizer.step(1e-2, clip_factor(inspect_gradients(optimizer.parameters()).norm, 1.0));
    }
    EXPECT_LT(last, 0.9 * first) << group;
    // TC23: every expert got tokens, so every row of B moved away from zero.
    for (const Parameter& parameter : optimizer.parameters()) {
      if (parameter.name.ends_with("lora_B.weight")) {
        EXPECT_TRUE(parameter.value.abs().sum(1).gt(0).all().item<bool>()) << parameter.name;
      }
    }
  }
}

}  // namespace
}  // namespace asterism::train
