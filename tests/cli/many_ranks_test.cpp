// Runs of several processes on this machine, from the command line.
#include <gtest/gtest.h>

#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/cli/training_files.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using testing::Program;
using testing::ProgramResult;

const std::string kSteady = "schedule: {decay: constant}\nlog: {tensorboard: false}\n";

/// The children of a process, as the system lists them.
std::vector<pid_t> children_of(pid_t process) {
  std::ifstream list("/proc/" + std::to_string(process) + "/task/" + std::to_string(process) + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

class ManyRanks : public ::testing::Test {
 protected:
  std::vector<std::string> command(const std::string& recipe, int ranks, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"train", recipe, "--ranks", std::to_string(ranks)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  size_t lines_done() const { return fs::exists(files_.run("metrics.jsonl")) ? files_.metrics().size() : 0; }

  TrainingFiles files_;
};

TEST_F(ManyRanks, MakeTheFilesOfOneInEveryBit) {
  for (const bool lora : {true, false}) {
    const std::string recipe = files_.recipe((lora ? kSmallLora : "") + kSteady);
    const std::string result = lora ? "adapter/adapter_model.safetensors" : "model/model.safetensors";
    std::vector<std::string> results;
    std::vector<std::vector<nlohmann::json>> metrics;
    for (const int ranks : {1, 2, 3}) {
      fs::remove_all(files_ / "runs");
      std::vector<std::string> more = {"--set", "train.deterministic=strict"};
      if (ranks == 2) more.insert(more.end(), {"--set", "parallel.expert=2"});
      const ProgramResult ended = testing::run_asterism(command(recipe, ranks, more));
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      results.push_back(read_text(files_.run(result)));
      metrics.push_back(files_.metrics());
      EXPECT_EQ(files_.report().at("layout").at("ranks"), ranks);
      EXPECT_EQ(files_.report().at("layout").at("expert"), ranks == 2 ? 2 : 1);
    }
    for (size_t i = 1; i < results.size(); ++i) {
      EXPECT_EQ(results[i], results[0]);
      ASSERT_EQ(metrics[i].size(), metrics[0].size());
      for (size_t step = 0; step < metrics[0].size(); ++step) {
        for (const char* key : {"loss", "grad_norm", "tokens", "input_tokens", "rows", "eval_loss"}) {
          EXPECT_EQ(metrics[i][step].value(key, nlohmann::json()), metrics[0][step].value(key, nlohmann::json()))
              << key;
        }
      }
    }
  }
}

TEST_F(ManyRanks, InheritTheEnvironmentOfTheirUser) {
  const std::string recipe = files_.recipe(kSmallLora + kSteady);
  Program program(command(recipe, 2, {"--set", "train.steps=1"}), "", "asterism", {"ASTERISM_CPU=portable"});
  const ProgramResult ended = program.result();
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(files_.report().at("machine").at("matmul_fp32"), "MKL");
}

TEST_F(ManyRanks, AKilledRankEndsAllAndTheRunGoesOnLater) {
  const std::string recipe = files_.recipe(kSmallLora + kSteady + "checkpoint: {every: 1}\n");
  Program program(command(recipe, 2, {"--set", "train.steps=100000"}));
  ASSERT_TRUE(program.wait_until([&] { return lines_done() > 2; })) << program.result().err;
  const std::vector<pid_t> ranks = children_of(program.id());
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  const ProgramResult ended = program.result();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_NE(ended.last_error_line().find("rank"), std::string::npos) << ended.err;
  for (const pid_t rank : ranks) EXPECT_NE(kill(rank, 0), 0) << "process " << rank << " was left behind";
  const size_t done = lines_done();
  const ProgramResult again =
      testing::run_asterism(command(recipe, 1, {"--set", "train.steps=" + std::to_string(done + 2)}));
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_NE(again.err.find("resuming after step"), std::string::npos) << again.err;
}

TEST_F(ManyRanks, ASignalSavesAndEndsAll) {
  const std::string recipe = files_.recipe(kSmallLora + kSteady);
  Program program(command(recipe, 2, {"--set", "train.steps=100000"}));
  ASSERT_TRUE(program.wait_until([&] { return lines_done() > 1; })) << program.result().err;
  program.send(SIGINT);
  const ProgramResult ended = program.result();
  EXPECT_EQ(ended.exit_code, 130) << ended.err;
  EXPECT_TRUE(fs::exists(files_.run("checkpoints/latest")));
  EXPECT_TRUE(fs::exists(files_.run("adapter/adapter_model.safetensors")));
}

// Two ranks in folders of their own: a relative path leads to the model on the first of them alone.
std::vector<ProgramResult> run_apart(const std::string& recipe, const fs::path& first, const fs::path& second,
                                     const std::vector<std::string>& more) {
  const fs::path here = fs::current_path();
  const std::string port = std::to_string(20'000 + ::getpid() % 20'000);
  std::vector<std::string> arguments = {"train", recipe, "--set", "model.path=model"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<std::unique_ptr<Program>> programs;
  for (const fs::path& folder : {first, second}) {
    fs::current_path(folder);
    const std::string rank = std::to_string(programs.size());
    programs.push_back(std::make_unique<Program>(
        arguments, "", "asterism",
        std::vector<std::string>{"RANK=" + rank, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port}));
  }
  fs::current_path(here);
  std::vector<ProgramResult> results;
  for (const auto& program : programs) results.push_back(program->result());
  return results;
}

TEST_F(ManyRanks, TheModelMayBeOnRankZeroAlone) {
  const fs::path elsewhere = files_ / "elsewhere";
  fs::create_directory(elsewhere);
  for (const bool lora : {true, false}) {
    const std::string recipe = files_.recipe((lora ? kSmallLora : "") + kSteady + "checkpoint: {every: 1}\n");
    const std::string result = lora ? "adapter/adapter_model.safetensors" : "model/model.safetensors";
    const std::vector<std::string> more = {"--set", "parallel.expert=2"};
    fs::remove_all(files_ / "runs");
    const ProgramResult together = testing::run_asterism(command(recipe, 2, more));
    ASSERT_EQ(together.exit_code, 0) << together.err;
    const std::string expected = read_text(files_.run(result));
    fs::remove_all(files_ / "runs");
    for (const ProgramResult& ended : run_apart(recipe, files_ / ".", elsewhere, more)) {
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
    }
    EXPECT_EQ(read_text(files_.run(result)), expected);
    EXPECT_NE(read_text(files_.run("log.txt")).find("rank 0 reads the weights"), std::string::npos);
    EXPECT_TRUE(fs::is_empty(elsewhere));
  }
}

TEST_F(ManyRanks, ARunGoesOnFromACheckpointThatRankZeroAloneHas) {
  const fs::path elsewhere = files_ / "elsewhere";
  fs::create_directory(elsewhere);
  const std::string recipe = files_.recipe(kSmallLora + kSteady), result = "adapter/adapter_model.safetensors";
  ASSERT_EQ(testing::run_asterism(command(recipe, 2, {})).exit_code, 0);
  for (const char* steps : {"train.steps=2", "train.steps=3"}) {
    for (const ProgramResult& ended :
         run_apart(recipe, files_ / ".", elsewhere, {"--set", "output=results", "--set", steps})) {
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
    }
  }
  EXPECT_EQ(read_text(files_ / "results/run" / result), read_text(files_.run(result)));
  EXPECT_NE(read_text(files_ / "results/run/log.txt").find("rank 0 reads it and sends the parts"), std::string::npos);
  EXPECT_FALSE(fs::exists(elsewhere / "results/run"));
}

TEST_F(ManyRanks, AMeshThatDoesNotFitIsRefusedBeforeAnythingIsWritten) {
  const std::string recipe = files_.recipe(kSmallLora);
  const ProgramResult ended = testing::run_asterism(command(recipe, 2, {"--set", "parallel.expert=3"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("parallel.expert: 3 does not fit 2 ranks"), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(files_.run("recipe.yaml")));
}

TEST_F(ManyRanks, ADryRunShowsTheMesh) {
  const std::string recipe = files_.recipe(kSmallLora);
  const ProgramResult ended = testing::run_asterism(command(recipe, 4, {"--dry-run", "--set", "parallel.expert=2"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("4 ranks: dense weights split over 4 (shard)"), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(files_ / "runs"));
}

}  // namespace
}  // namespace asterism::cli
