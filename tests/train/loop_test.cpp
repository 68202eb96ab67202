#include "asterism/train/loop.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/train_state.h"
#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/model/lora.h"
#include "asterism/train/step.h"
#include "tests/support/file_faults.h"
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

struct RunOptions {
  int64_t steps = 0;
  int64_t stop_after = 1000;           // steps of this process
  std::function<void()> between = {};  // called after each step
  bool save_requested = false;         // once, after the first step
  int64_t rows = 30;                   // of training data
};

FinishedRun run(const Recipe& recipe, const fs::path& folder, const RunOptions& options) {
  FinishedRun result;
  result.model = testing::tiny_model(at::kFloat);
  if (recipe.lora) {
    model::attach_lora(result.model.config, result.model.weights, recipe.lora->config, recipe.seed);
    result.parameters = lora_parameters(result.model);
  } else {
    result.parameters = full_parameters(result.model, {});
  }
  const data::DataSet train_data = data_of(recipe, options.rows), eval_data = data_of(recipe, 3);
  const RunFolder run_folder(folder);
  run_folder.create();
  int64_t asked = 0;
  bool save_requested = options.save_requested;
  LoopInputs inputs{recipe, result.model, result.parameters, train_data, &eval_data, run_folder, options.steps};
  if (!recipe.lora) inputs.buffers = full_buffers(result.model);
  inputs.recipe_values["seed"] = std::to_string(recipe.seed);
  inputs.stop_requested = [&] {
    if (options.between) options.between();
    return ++asked >= options.stop_after;
  };
  inputs.save_requested = [&] { return std::exchange(save_requested, false); };
  if (recipe.lora) {
    inputs.write_adapter = [&](const fs::path& target, const model::Weights& weights, model::SliceReader*) {
      checkpoint::write_adapter(target, result.model.config, weights, recipe.lora->config, "");
    };
  }
  result.summary = run_loop(inputs);
  return result;
}

FinishedRun run(const Recipe& recipe, const fs::path& folder, int64_t steps, int64_t stop_after = 1000) {
  return run(recipe, folder, {.steps = steps, .stop_after = stop_after});
}

std::vector<nlohmann::json> metrics_of(const fs::path& folder) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(folder / "metrics.jsonl");
  std::string line;
  while (std::getline(file, line)) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

void expect_same_run(const fs::path& whole, const fs::path& parts, size_t steps) {
  const auto a = metrics_of(whole), b = metrics_of(parts);
  ASSERT_EQ(a.size(), steps);
  ASSERT_EQ(b.size(), steps);
  for (size_t i = 0; i < steps; ++i) {
    EXPECT_EQ(b[i]["step"], i + 1);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens", "input_tokens", "epoch", "dead_experts"}) {
      EXPECT_EQ(a[i][key], b[i][key]) << key << " of step " << i + 1;
    }
    EXPECT_EQ(a[i].value("eval_loss", 0.0), b[i].value("eval_loss", 0.0)) << i + 1;
  }
}

/// TC16: ten steps are four and six, with shuffled epochs, packing, accumulation, dropout and evaluation in between.
/// Rows are read ahead in the parts only.
void expect_bitwise_continuation(Recipe recipe) {
  const testing::TemporaryFolder whole, parts;
  recipe.data.workers = 0;
  const FinishedRun straight = run(recipe, whole.path(), 10);
  recipe.data.workers = 3;
  const FinishedRun first = run(recipe, parts.path(), 10, 4);
  EXPECT_TRUE(first.summary.stopped);
  EXPECT_EQ(first.summary.last_step, 4);
  const FinishedRun second = run(recipe, parts.path(), 10);
  EXPECT_EQ(second.summary.first_step, 4);
  EXPECT_EQ(second.summary.last_step, 10);
  expect_same_run(whole.path(), parts.path(), 10);
  for (size_t i = 0; i < straight.parameters.size(); ++i) {
    EXPECT_TRUE(at::equal(straight.parameters[i].value, second.parameters[i].value)) << straight.parameters[i].name;
  }
  // TC14: moments and update counts, too: all tensors of the last checkpoints are the same bytes.
  const auto state = [](const testing::TemporaryFolder& folder) {
    return checkpoint::read_train_state(checkpoint::StateFolder(folder / "checkpoints").path_of(10));
  };
  const auto a = state(whole), b = state(parts);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_TRUE(at::equal(a.tensors[i].tensor, b.tensors[i].tensor)) << a.tensors[i].name;
  }
  EXPECT_EQ(a.info.at("updates"), b.info.at("updates"));
  EXPECT_EQ(a.info.at("data"), b.info.at("data"));
}

TEST(Loop, AResumedLoraRunIsTheUninterruptedRunBitForBit) {
  Recipe recipe = small_recipe();
  recipe.eval_every = 3;
  recipe.lora.emplace();
  recipe.lora->config.dropout = 0.1;
  recipe.lora->config.rank = 2;
  expect_bitwise_continuation(recipe);
}

TEST(Loop, AResumedFullRunIsTheUninterruptedRunBitForBit) {
  // N3: the weights come back without an adapter file.
  Recipe recipe = small_recipe();
  recipe.eval_every = 3;
  expect_bitwise_continuation(recipe);
}

TEST(Loop, AnAdapterThatNeverGetsAGradientResumes) {
  // N4, TC13: the indexer is frozen, so a LoRA pair on it stays without a gradient, with zero moments and no update.
  Recipe recipe = small_recipe();
  recipe.lora.emplace();
  recipe.lora->config.rank = 2;
  recipe.lora->config.targets = {"*.indexer.*", "self_attn.q_a_proj"};
  expect_bitwise_continuation(recipe);
  const testing::TemporaryFolder folder;
  run(recipe, folder.path(), 2);
  const auto state = checkpoint::read_train_state(folder / "checkpoints/step-00000002");
  size_t untouched = 0;
  for (const auto& [name, updates] : state.info.at("updates").items()) {
    const bool indexer = name.find(".indexer.") != std::string::npos;
    EXPECT_EQ(updates, indexer ? 0 : 2) << name;
    untouched += indexer ? 1 : 0;
  }
  EXPECT_GT(untouched, 0u);
  for (const auto& named : state.tensors) {
    if (named.name.starts_with("exp_avg") && named.name.find(".indexer.") != std::string::npos) {
      EXPECT_FALSE(named.tensor.any().item<bool>()) << named.name;
    }
  }
}

TEST(Loop, ACheckpointHasTheMomentsOfEveryExpert) {
  // W2: one slice of the experts, written for all.
  Recipe recipe = small_recipe();
  recipe.lora.emplace();
  recipe.lora->config.targets = {"experts"};
  const testing::TemporaryFolder folder;
  const FinishedRun finished = run(recipe, folder.path(), 4);
  const auto state = checkpoint::read_train_state(folder / "checkpoints/step-00000004");
  std::map<std::string, at::Tensor> tensors;
  for (const auto& named : state.tensors) tensors[named.name] = named.tensor;
  EXPECT_EQ(tensors.size(), 3 * finished.parameters.size());
  const int64_t experts = finished.model.config.num_experts, rank = recipe.lora->config.rank;
  // B starts at zero: its columns of an expert (the fastest index) have moved where the expert was trained.
  const auto touched = [&](const at::Tensor& b) { return b.reshape({-1, rank, experts}).abs().sum({0, 1}).gt(0); };
  at::Tensor anywhere = at::zeros({experts}, at::kBool);
  for (const Parameter& parameter : finished.parameters) {
    for (const char* kind : {"exp_avg.", "exp_avg_sq."}) {
      const at::Tensor& moment = tensors.at(kind + parameter.name);
      ASSERT_EQ(moment.sizes(), parameter.value.sizes()) << parameter.name;
      if (!parameter.name.ends_with("lora_B.weight")) continue;
      EXPECT_TRUE(at::equal(touched(moment), touched(parameter.value))) << kind << parameter.name;
      anywhere = anywhere.logical_or(touched(moment));
    }
  }
  EXPECT_TRUE(anywhere.all().item<bool>()) << anywhere;
}

TEST(Loop, FrozenWeightsHaveNoGradientAndNoPartInTheNorm) {
  // N6: experts that became trainable again when they were cut into slices.
  Recipe recipe = small_recipe();
  recipe.lora.emplace();
  recipe.lora->config.targets = {"attention"};
  model::Model model = testing::tiny_model(at::kFloat);
  model::attach_lora(model.config, model.weights, recipe.lora->config, 1);
  const auto parameters = lora_parameters(model);
  StepSettings settings;
  settings.sequence_length = recipe.data.sequence_length;
  run_step(model, data_of(recipe, 30).rows_of_step(0), settings);
  model::for_each_tensor(model.config, model.weights, [](const model::TensorSpec& spec, at::Tensor& tensor) {
    EXPECT_FALSE(tensor.requires_grad()) << spec.name;
    EXPECT_FALSE(tensor.grad().defined()) << spec.name;
  });
  double squares = 0.0;
  for (const Parameter& parameter : parameters) {
    squares += parameter.value.grad().to(at::kDouble).square().sum().item<double>();
  }
  EXPECT_NEAR(inspect_gradients(parameters).norm, std::sqrt(squares), 1e-6 * std::sqrt(squares));
}

TEST(Loop, ACheckpointSaysForHowLongTrainingStoodStill) {
  const testing::TemporaryFolder folder;
  Recipe recipe = small_recipe();
  recipe.log.every = 3;
  run(recipe, folder.path(), 5);
  const auto rows = metrics_of(folder.path());
  std::vector<int64_t> logged, saved;
  for (const auto& row : rows) {
    logged.push_back(row.at("step"));
    if (!row.contains("checkpoint_seconds")) continue;
    saved.push_back(row.at("step"));
    EXPECT_GE(row.at("checkpoint_seconds").get<double>(), 0.0);
  }
  EXPECT_EQ(logged, (std::vector<int64_t>{2, 3, 4, 5}));  // those of a checkpoint always
  EXPECT_EQ(saved, (std::vector<int64_t>{2, 4, 5}));
}

TEST(Loop, SavesOnRequestAndGoesOn) {
  const testing::TemporaryFolder folder;
  Recipe recipe = small_recipe();
  recipe.checkpoint.every = 0;
  const FinishedRun finished = run(recipe, folder.path(), {.steps = 3, .save_requested = true});
  EXPECT_EQ(finished.summary.last_step, 3);
  EXPECT_FALSE(finished.summary.stopped);
  EXPECT_EQ(checkpoint::StateFolder(folder / "checkpoints").steps(), (std::vector<int64_t>{1, 3}));
}

TEST(Loop, AFullDiskEndsTheRunWithTheCheckpointBefore) {
  const testing::TemporaryFolder folder;
  std::optional<testing::FileFaults> faults;
  int64_t step = 0;
  const auto fill_disk = [&] {
    if (++step == 3) {
      faults.emplace(folder / "checkpoints",
                     testing::FileFaults::Fault{testing::FileFaults::Kind::kWrite, 1, ENOSPC, true});
    }
  };
  const std::string error =
      testing::error_of<RunError>([&] { run(small_recipe(), folder.path(), {.steps = 100, .between = fill_disk}); });
  faults.reset();
  EXPECT_NE(error.find("No space left on device"), std::string::npos) << error;
  EXPECT_LE(step, 7) << "the failure of step 4's checkpoint surfaced late";
  EXPECT_EQ(checkpoint::StateFolder(folder / "checkpoints").steps(), (std::vector<int64_t>{2}));
  const FinishedRun resumed = run(small_recipe(), folder.path(), 6);
  EXPECT_EQ(resumed.summary.first_step, 2);
  EXPECT_EQ(metrics_of(folder.path()).size(), 6u);
}

TEST(Loop, SaysWhenLinesOfTheMetricsWereLost) {
  const testing::TemporaryFolder folder;
  run(small_recipe(), folder.path(), 2);
  std::ofstream(folder / "metrics.jsonl") << "{\"step\":2}\n";
  ::testing::internal::CaptureStderr();
  run(small_recipe(), folder.path(), 4);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("has 11 bytes up to the checkpoint, which recorded"), std::string::npos) << log;
}

TEST(Loop, MetricsHaveTheKeysOfTheInterface) {
  const testing::TemporaryFolder folder;
  run(small_recipe(), folder.path(), 2);
  const auto rows = metrics_of(folder.path());
  ASSERT_EQ(rows.size(), 2u);
  for (const char* key :
       {"step", "epoch", "loss", "tokens", "input_tokens", "rows", "lr", "grad_norm", "seconds", "tokens_per_second",
        "peak_memory_bytes", "expert_load_std", "dead_experts", "expert_load_max"}) {
    EXPECT_TRUE(rows[0].contains(key)) << key;
  }
  for (const char* key : {"communication", "rank_seconds"}) EXPECT_FALSE(rows[0].contains(key)) << key;
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
  run(small_recipe(), folder.path(), 2);
  const std::string error =
      testing::error_of<InputError>([&] { run(small_recipe(), folder.path(), {.steps = 4, .rows = 31}); });
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
  // The past that this run does not go on from is set aside, and stays as long as there is no other.
  checkpoint::read_train_state(folder / "checkpoints/abandoned-step-00000002");
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
