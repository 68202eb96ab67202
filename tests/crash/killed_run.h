#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "asterism/checkpoint/train_state.h"
#include "asterism/core/error.h"
#include "tests/cli/training_files.h"

namespace asterism::cli {

inline constexpr const char* kEndless = "1000000000";  // steps

/// The files of a run with a checkpoint at every step, whose processes are killed again and again.
class KilledFiles {
 public:
  /// `more` holds further sections of the recipe.
  explicit KilledFiles(const std::string& more)
      : recipe_(files_.recipe(text(more,
                                   "checkpoint: {every: 1}\nschedule: {decay: constant}\neval: {every: 7}\n"
                                   "log: {tensorboard: false}\n"))) {}

  const TrainingFiles& files() const { return files_; }
  const std::string& recipe() const { return recipe_; }
  int64_t newest() const { return newest_; }

  /// Steps whose lines are whole.
  std::vector<nlohmann::json> whole_lines() const {
    std::vector<nlohmann::json> rows;
    if (!std::filesystem::exists(files_.run("metrics.jsonl"))) return rows;
    std::istringstream lines(read_text(files_.run("metrics.jsonl")));
    for (std::string line; std::getline(lines, line) && !lines.eof();) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  void sleep_up_to(double seconds) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::uniform_real_distribution<double>(0.0, seconds)(random_)));
  }

  /// Every checkpoint is complete, `latest` names one of them, no step is lost, and neither are the lines up to it.
  void expect_nothing_lost() {
    const checkpoint::StateFolder states(files_.run("checkpoints"));
    const std::vector<int64_t> steps = states.steps();
    if (steps.empty()) {
      ASSERT_EQ(newest_, 0);
      return;
    }
    for (const int64_t step : steps)
      EXPECT_EQ(checkpoint::read_train_state(states.path_of(step)).info.at("step"), step);
    ASSERT_GE(steps.back(), newest_);
    newest_ = steps.back();
    if (newest_ > 1) {
      const std::string latest = read_text(files_.run("checkpoints/latest"));
      EXPECT_TRUE(std::filesystem::is_directory(files_.run("checkpoints/" + latest.substr(0, latest.size() - 1))))
          << latest;
    }
    const auto rows = whole_lines();
    ASSERT_GE(static_cast<int64_t>(rows.size()), newest_);
    for (int64_t i = 0; i < newest_; ++i) ASSERT_EQ(rows[static_cast<size_t>(i)].at("step"), i + 1);
  }

  /// The adapter, or the whole model.
  std::string result() const {
    const bool adapter = std::filesystem::exists(files_.run("adapter"));
    return read_text(files_.run(adapter ? "adapter/adapter_model.safetensors" : "model/model.safetensors"));
  }

 private:
  TrainingFiles files_;
  std::string recipe_;
  std::mt19937 random_{std::random_device()()};
  int64_t newest_ = 0;
};

/// Both have the same lines, but for times and memory.
inline void expect_same_metrics(const std::vector<nlohmann::json>& actual,
                                const std::vector<nlohmann::json>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].at("step"), i + 1);
    for (const char* key : {"loss", "grad_norm", "lr", "input_tokens", "eval_loss"}) {
      EXPECT_EQ(actual[i].value(key, -1.0), expected[i].value(key, -1.0)) << key << " of step " << i + 1;
    }
  }
}

}  // namespace asterism::cli
