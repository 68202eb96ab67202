#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/train_state.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/rng.h"
#include "asterism/dist/thread_transport.h"
#include "asterism/model/lora.h"
#include "asterism/train/loop.h"
#include "asterism/train/shared_parameters.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

// Whole runs by ranks that are threads: metrics, checkpoints and adapters must not tell which layout made them.
namespace asterism::train {
namespace {

namespace fs = std::filesystem;

struct Layout {
  int ranks = 0;  // 0: the plain loop of one rank
  parallel::MeshRequest mesh = {};
};

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << layout.ranks << " ranks, expert " << layout.mesh.expert << ", shard " << layout.mesh.shard;
}

const Layout kAlone;
const std::vector<Layout> kLayouts = {{1, {}}, {2, {2, 2, 1}}, {3, {1, 3, 1}}, {4, {2, 2, 2}}, {8, {8, 8, 1}}};

/// Rows of 5 to 16 tokens, the first third of each not trained.
std::string rows_text(int64_t count) {
  std::string lines;
  for (int64_t i = 0; i < count; ++i) {
    const RandomStream stream(static_cast<uint64_t>(i), "shared-loop");
    nlohmann::json ids, labels;
    const uint64_t length = 5 + stream.below(12, 999);
    for (uint64_t t = 0; t < length; ++t) {
      ids.push_back(stream.below(97, t));
      labels.push_back(t < length / 3 ? nlohmann::json(-100) : ids.back());
    }
    lines += nlohmann::json{{"input_ids", ids}, {"labels", labels}}.dump() + "\n";
  }
  return lines;
}

Recipe shared_recipe(bool lora) {
  Recipe recipe;
  recipe.name = "test";
  recipe.seed = 3;
  recipe.data.sequence_length = 24;
  recipe.train.batch = 7;  // four micro-batches, the last one of one row
  recipe.train.micro_batch = 2;
  recipe.optimizer.lr = 3e-3;
  recipe.schedule.warmup_steps = 2;
  recipe.checkpoint.every = 2;
  recipe.log.tensorboard = false;
  recipe.eval_every = 2;
  if (lora) {
    recipe.lora.emplace();
    recipe.lora->config.rank = 2;
    recipe.lora->config.dropout = 0.1;
  }
  return recipe;
}

data::DataSet shared_data_of(const Recipe& recipe, const fs::path& folder, int64_t count) {
  const data::PreparationOptions preparation{.fit = {.sequence_length = recipe.data.sequence_length}};
  const std::vector<data::DataSource> sources = {{folder / text(count, ".jsonl")}};
  const data::DataSetOptions options{.seed = recipe.seed, .batch = recipe.train.batch};
  return data::DataSet(data::prepare_data(sources, preparation, {}), preparation.rows, preparation.fit, options);
}

class SharedLoop : public ::testing::Test {
 protected:
  SharedLoop() {
    folder_.write("40.jsonl", rows_text(40));
    folder_.write("3.jsonl", rows_text(3));
  }

  /// One rank's part of a run, or the whole run when there is no transport.
  void run_rank(const Recipe& recipe, const fs::path& target, int64_t steps, const Layout& layout, bool strict,
                const std::shared_ptr<dist::Transport>& transport) const {
    model::Model model = testing::tiny_model(at::kFloat);
    std::vector<Parameter> parameters;
    if (recipe.lora) {
      model::attach_lora(model.config, model.weights, recipe.lora->config, recipe.seed);
      model::set_lora_dropout(model.config, model.weights, recipe.lora->config.dropout);
      parameters = lora_parameters(model);
    } else {
      parameters = full_parameters(model, {});
    }
    const auto buffers = recipe.lora ? std::vector<Parameter>() : full_buffers(model);
    std::shared_ptr<parallel::ShardedModel> shared;
    if (transport) {
      const auto world = std::make_shared<dist::Comm>(transport, "world");
      const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(layout.ranks, layout.mesh));
      SharedParameters own = share_parameters(model, std::move(parameters), comms, strict);
      shared = own.model;
      parameters = own.parameters;
    }
    const data::DataSet train_data = shared_data_of(recipe, folder_.path(), 40),
                        eval_data = shared_data_of(recipe, folder_.path(), 3);
    const RunFolder run_folder(target);
    LoopInputs inputs{recipe, model, parameters, train_data, &eval_data, run_folder, steps};
    inputs.buffers = buffers;
    inputs.shared = shared.get();
    if (recipe.lora) {
      inputs.write_adapter = [&](const fs::path& path, const model::Weights& weights, model::SliceReader* values) {
        checkpoint::write_adapter(path, model.config, weights, recipe.lora->config, "", /*replace=*/true,
                                  checkpoint::AdapterLayout::kPeft, values);
      };
    }
    run_loop(inputs);
  }

  fs::path run(const Recipe& recipe, const std::string& name, int64_t steps, const Layout& layout,
               bool strict = false) const {
    const fs::path target = folder_ / name;
    RunFolder(target).create();
    if (layout.ranks == 0) {
      run_rank(recipe, target, steps, layout, strict, nullptr);
    } else {
      dist::run_thread_ranks(layout.ranks, [&](const std::shared_ptr<dist::Transport>& transport) {
        run_rank(recipe, target, steps, layout, strict, transport);
      });
    }
    return target;
  }

  testing::TemporaryFolder folder_;
};

std::vector<nlohmann::json> logged_steps(const fs::path& folder) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(folder / "metrics.jsonl");
  std::string line;
  while (std::getline(file, line)) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::map<std::string, at::Tensor> state_of(const fs::path& folder, int64_t step) {
  std::map<std::string, at::Tensor> tensors;
  const checkpoint::StateFolder states(RunFolder(folder).checkpoints_folder());
  for (const auto& named : checkpoint::read_train_state(states.path_of(step)).tensors) {
    tensors[named.name] = named.tensor.clone();
  }
  return tensors;
}

void expect_close_runs(const fs::path& actual, const fs::path& expected, int64_t steps) {
  const auto a = logged_steps(actual), b = logged_steps(expected);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"step", "tokens", "input_tokens", "rows", "lr", "dead_experts", "expert_load_std"}) {
      EXPECT_EQ(a[i][key], b[i][key]) << key;
    }
    for (const char* key : {"loss", "grad_norm", "eval_loss"}) {
      if (!b[i].contains(key)) continue;
      // Adam divides small gradients by small moments: where a gradient nearly cancels, rounding decides its sign, and
      // runs that differ in rounding drift apart. That sums are the same is tested in strict mode, bit for bit.
      const double tolerance = i == 0 ? 1e-5 : 1e-3;
      EXPECT_NEAR(a[i][key].get<double>(), b[i][key].get<double>(), tolerance * b[i][key].get<double>()) << key;
    }
  }
  const auto state = state_of(actual, steps), whole = state_of(expected, steps);
  EXPECT_EQ(state.size(), whole.size());
  for (const auto& [name, tensor] : whole) {
    ASSERT_TRUE(state.contains(name)) << name;
    ASSERT_EQ(state.at(name).sizes(), tensor.sizes()) << name;
    if (!name.starts_with("param.")) continue;
    const double error = (state.at(name) - tensor).norm().item<double>();
    EXPECT_LE(error, 3e-3 * tensor.norm().item<double>() + 1e-7) << name;
  }
}

void expect_same_bits(const fs::path& actual, const fs::path& expected, int64_t steps) {
  const auto a = logged_steps(actual), b = logged_steps(expected);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    for (const char* key : {"loss", "grad_norm", "eval_loss", "lr", "tokens"}) {
      if (b[i].contains(key)) {
        EXPECT_EQ(a[i][key], b[i][key]) << key << " of step " << b[i]["step"];
      }
    }
  }
  const auto state = state_of(actual, steps), whole = state_of(expected, steps);
  ASSERT_EQ(state.size(), whole.size());
  for (const auto& [name, tensor] : whole) EXPECT_TRUE(at::equal(state.at(name), tensor)) << name;
  const fs::path adapter = fs::path("adapter") / "adapter_model.safetensors";
  ASSERT_EQ(fs::exists(actual / adapter), fs::exists(expected / adapter));
  if (fs::exists(expected / adapter)) {
    EXPECT_EQ(read_text(actual / adapter), read_text(expected / adapter));
  }
}

TEST_F(SharedLoop, EveryLayoutMakesTheRunOfOneRank) {
  for (const bool lora : {false, true}) {
    const Recipe recipe = shared_recipe(lora);
    const fs::path expected = run(recipe, text("alone", lora), 4, kAlone);
    for (size_t i = 0; i < kLayouts.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << kLayouts[i] << (lora ? ", LoRA" : ""));
      expect_close_runs(run(recipe, text("shared", lora, i), 4, kLayouts[i]), expected, 4);
    }
  }
}

TEST_F(SharedLoop, StrictRunsAreTheSameInEveryBitAlsoWhenResumedUnderAnotherLayout) {
  for (const bool lora : {false, true}) {
    Recipe recipe = shared_recipe(lora);
    recipe.schedule.decay = Decay::kConstant;  // the same rates in runs of two steps and of four
    const fs::path expected = run(recipe, text("strict", lora), 4, {1, {}}, /*strict=*/true);
    // The first half under one layout, the second under another.
    const std::vector<std::pair<Layout, Layout>> changes = {{{2, {2, 2, 1}}, {3, {1, 3, 1}}},
                                                            {{4, {2, 2, 2}}, {1, {}}},
                                                            {{1, {}}, {2, {1, 1, 2}}},
                                                            {{4, {2, 4, 1}}, {4, {4, 4, 1}}},
                                                            {{4, {2, 4, 1}}, {4, {1, 4, 1}}}};  // TC15: the last two
    for (size_t i = 0; i < changes.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << changes[i].first << ", then " << changes[i].second
                                        << (lora ? ", LoRA" : ""));
      const std::string name = text("strict", lora, i);
      run(recipe, name, 2, changes[i].first, true);
      run(recipe, name, 4, changes[i].second, true);
      expect_same_bits(folder_ / name, expected, 4);
    }
  }
}

TEST_F(SharedLoop, ACheckpointOfOneRankResumesOnManyAndBack) {
  const Recipe recipe = shared_recipe(false);
  Recipe constant = recipe;
  constant.schedule.warmup_steps = 0;
  constant.schedule.decay = Decay::kConstant;
  const fs::path expected = run(constant, "whole", 4, kAlone);
  const fs::path there = run(constant, "there", 2, kAlone);
  run(constant, "there", 4, {4, {2, 2, 2}});
  expect_close_runs(there, expected, 4);
  const fs::path back = run(constant, "back", 2, {3, {3, 3, 1}});
  run(constant, "back", 4, kAlone);
  expect_close_runs(back, expected, 4);
}

TEST_F(SharedLoop, MetricsTellWhatTheRanksDid) {
  const fs::path folder = run(shared_recipe(false), "metrics", 2, {4, {2, 2, 2}});
  const auto rows = logged_steps(folder);
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) {
    const auto peaks = row.at("rank_peak_memory_bytes").get<std::vector<int64_t>>();
    EXPECT_EQ(row.at("peak_memory_bytes"), std::ranges::max(peaks));
    for (const char* key : {"rank_seconds", "rank_wait_seconds", "rank_peak_memory_bytes"}) {
      ASSERT_EQ(row[key].size(), 4u) << key;
      for (const auto& value : row[key]) EXPECT_GT(value.get<double>(), 0.0) << key;
    }
    for (size_t r = 0; r < 4; ++r) EXPECT_LT(row["rank_wait_seconds"][r], row["rank_seconds"][r]);
    const auto& communication = row["communication"];
    for (const char* kind : {"shard all_gather", "shard reduce_scatter", "expert all_to_all", "replicate all_reduce"}) {
      ASSERT_TRUE(communication.contains(kind)) << kind;
      EXPECT_GT(communication[kind]["calls"], 0) << kind;
      EXPECT_GT(communication[kind]["bytes"], 0) << kind;
      EXPECT_GT(communication[kind]["wait_seconds"], 0.0) << kind;
      EXPECT_GT(communication[kind]["overlap_seconds"], 0.0) << kind;
    }
  }
  // The same work every step; a gather that runs ahead may belong to the step before.
  EXPECT_EQ(rows[0]["communication"]["expert all_to_all"]["calls"],
            rows[1]["communication"]["expert all_to_all"]["calls"]);
}

}  // namespace
}  // namespace asterism::train
