// Nothing is lost: `asterism train` with a checkpoint at every step is killed with SIGKILL at random moments, again and
// again, and in the end has walked the road of a run that nobody disturbed. ASTERISM_LONG=1: 200 kills.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "asterism/checkpoint/train_state.h"
#include "asterism/core/error.h"
#include "tests/cli/training_files.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::StateFolder;
using testing::Program;
using testing::ProgramResult;

constexpr const char* kEndless = "1000000000";  // steps

class KilledRun : public ::testing::TestWithParam<const char*> {
 protected:
  KilledRun() {
    recipe_ = files_.recipe(text(GetParam(),
                                 "checkpoint: {every: 1}\nschedule: {decay: constant}\neval: {every: 7}\n"
                                 "log: {tensorboard: false}\n"));
  }

  std::vector<std::string> command(const std::string& steps) const {
    return {"train", recipe_, "--set", "train.steps=" + steps};
  }

  /// Steps whose lines are whole.
  std::vector<nlohmann::json> whole_lines() const {
    std::vector<nlohmann::json> rows;
    if (!fs::exists(files_.run("metrics.jsonl"))) return rows;
    std::istringstream lines(read_text(files_.run("metrics.jsonl")));
    for (std::string line; std::getline(lines, line) && !lines.eof();) rows.push_back(nlohmann::json::parse(line));
    return rows;
  }

  /// Lets the program run to a random moment and kills it there: in one of four lives soon after its start, else within
  /// some steps after the first that it has done.
  void live_and_be_killed(int life) {
    Program program(command(kEndless));
    const auto started = std::chrono::steady_clock::now();
    const size_t before = whole_lines().size();
    if (life % 4 == 3) {
      sleep_up_to(startup_);
    } else {
      ASSERT_TRUE(program.wait_until([&] { return whole_lines().size() > before + 1; })) << program.result().err;
      startup_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
      sleep_up_to(0.15);
    }
    program.send(SIGKILL);
    ASSERT_EQ(program.result().exit_code, 128 + SIGKILL) << program.result().err;
  }

  void sleep_up_to(double seconds) {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(std::uniform_real_distribution<double>(0.0, seconds)(random_)));
  }

  /// Every checkpoint is complete, `latest` names one of them, no step is lost, and neither are the lines up to it.
  void expect_nothing_lost() {
    const StateFolder states(files_.run("checkpoints"));
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
      EXPECT_TRUE(fs::is_directory(files_.run("checkpoints/" + latest.substr(0, latest.size() - 1)))) << latest;
    }
    const auto rows = whole_lines();
    ASSERT_GE(static_cast<int64_t>(rows.size()), newest_);
    for (int64_t i = 0; i < newest_; ++i) ASSERT_EQ(rows[static_cast<size_t>(i)].at("step"), i + 1);
  }

  TrainingFiles files_;
  std::string recipe_;
  std::mt19937 random_{std::random_device()()};
  double startup_ = 1.0;  // seconds until a program has done a step
  int64_t newest_ = 0;
};

TEST_P(KilledRun, WalksTheRoadOfAnUndisturbedOne) {
  const int kills = std::getenv("ASTERISM_LONG") != nullptr ? 100 : 3;
  for (int life = 0; life < kills && !HasFatalFailure(); ++life) {
    SCOPED_TRACE(text("life ", life));
    live_and_be_killed(life);
    expect_nothing_lost();
  }
  ASSERT_FALSE(HasFatalFailure());
  const std::string steps = std::to_string(newest_ + 3);
  const ProgramResult last = testing::run_asterism(command(steps));
  ASSERT_EQ(last.exit_code, 0) << last.err;
  const auto disturbed = files_.metrics();
  const std::string result =
      fs::exists(files_.run("adapter")) ? "adapter/adapter_model.safetensors" : "model/model.safetensors";
  const std::string disturbed_result = read_text(files_.run(result));

  fs::remove_all(files_ / "runs");
  const ProgramResult undisturbed = testing::run_asterism(command(steps));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;
  const auto rows = files_.metrics();
  ASSERT_EQ(disturbed.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(disturbed[i].at("step"), i + 1);
    for (const char* key : {"loss", "grad_norm", "lr", "input_tokens", "eval_loss"}) {
      EXPECT_EQ(disturbed[i].value(key, -1.0), rows[i].value(key, -1.0)) << key << " of step " << i + 1;
    }
  }
  EXPECT_TRUE(disturbed_result == read_text(files_.run(result)));
  RecordProperty("kills", kills);
  RecordProperty("steps", steps);
  std::cout << "[ KilledRun] " << kills << " kills in " << steps << " steps\n";
}

INSTANTIATE_TEST_SUITE_P(Modes, KilledRun,
                         ::testing::Values("lora: {rank: 2, alpha: 4, dropout: 0.1, targets: [attention, experts]}\n",
                                           ""),
                         [](const auto& mode) { return mode.index == 0 ? "Lora" : "Full"; });

}  // namespace
}  // namespace asterism::cli
