// What `asterism train` leaves behind, and goes on from, when signals, other processes, disks and users interfere.
#include <gtest/gtest.h>
#include <sys/file.h>

#include <csignal>
#include <thread>

#include "asterism/checkpoint/train_state.h"
#include "asterism/cli/command_line.h"
#include "asterism/core/error.h"
#include "asterism/core/folder.h"
#include "tests/cli/training_files.h"
#include "tests/support/file_faults.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using checkpoint::StateFolder;
using testing::error_of;
using testing::FileFaults;
using testing::Program;
using testing::ProgramResult;
using Steps = std::vector<int64_t>;

class RunRecovery : public ::testing::Test {
 protected:
  StateFolder states() const { return StateFolder(files_.run("checkpoints")); }
  bool file_has(const std::string& name, const std::string& fragment) const {
    const fs::path path = files_.run(name);
    return fs::exists(path) && read_text(path).find(fragment) != std::string::npos;
  }
  std::string refusal(const TrainArgs& args) {
    return error_of<InputError>([&] { run_train(args); });
  }
  void expect_steps(size_t steps) const {
    const auto metrics = files_.metrics();
    ASSERT_EQ(metrics.size(), steps);
    for (size_t i = 0; i < steps; ++i) EXPECT_EQ(metrics[i].at("step"), i + 1);
  }

  TrainingFiles files_;
};

TEST_F(RunRecovery, ASecondSignalEndsAtOnceAndLeavesTheCheckpointBefore) {
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe, .overrides = {"train.steps=2"}});
  // An evaluation that takes minutes keeps the third step from its end.
  const std::string row = read_text(files_ / "eval.jsonl");
  std::string rows;
  for (int i = 0; i < 20000; ++i) rows += row;
  files_.folder().write("long.jsonl", rows);
  Program program({"train", recipe, "--set", "eval.every=1", "--set", "data.eval=" + (files_ / "long.jsonl").string()});
  ASSERT_TRUE(program.wait_until([&] { return file_has("log.txt", "resuming after step 2"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  program.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  ASSERT_TRUE(program.runs()) << "the first signal lets the step end";
  program.send(SIGTERM);
  EXPECT_EQ(program.result().exit_code, 128 + SIGTERM);
  EXPECT_EQ(states().steps(), Steps{2});
  checkpoint::read_train_state(states().path_of(2));
  run_train({.recipe = recipe});
  expect_steps(3);
}

TEST_F(RunRecovery, AUserSignalSavesAndTheRunGoesOn) {
  const std::string recipe = files_.recipe(kSmallLora);
  Program program({"train", recipe, "--set", "train.steps=100000", "--set", "checkpoint.every=0"});
  ASSERT_TRUE(program.wait_until([&] { return file_has("metrics.jsonl", "\"step\":3,"); }));
  EXPECT_EQ(states().steps(), Steps{});
  program.send(SIGUSR1);
  ASSERT_TRUE(program.wait_until([&] { return fs::exists(files_.run("checkpoints/latest")); }));
  const Steps saved = states().steps();
  ASSERT_EQ(saved.size(), 1u);
  checkpoint::read_train_state(states().path_of(saved[0]));
  const std::string later = text("\"step\":", saved[0] + 3, ",");
  ASSERT_TRUE(program.wait_until([&] { return file_has("metrics.jsonl", later); })) << "it must go on";
  program.send(SIGINT);
  const ProgramResult result = program.result();
  EXPECT_EQ(result.exit_code, kInterrupted) << result.err;
  EXPECT_EQ(states().steps().size(), 2u);
  expect_steps(static_cast<size_t>(states().steps().back()));
}

TEST_F(RunRecovery, ASecondProcessInTheSameFolderIsRefused) {
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe});
  auto before = files_.contents();
  const FolderLock other(files_.run(""));
  const std::string error = refusal({.recipe = recipe, .overrides = {"train.steps=5"}});
  EXPECT_NE(error.find("another process works in this folder"), std::string::npos) << error;
  EXPECT_TRUE(files_.contents() == before);
}

TEST_F(RunRecovery, LeftoversOfAKilledProcessAreRemovedAtTheNextStart) {
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe});
  fs::create_directories(files_.run("checkpoints/step-00000004.tmp-17-5/adapter"));
  fs::create_directories(files_.run("adapter.tmp-17-5"));
  write_text_atomically(files_.run("metrics.jsonl.tmp-17-5"), "{");
  run_train({.recipe = recipe});
  for (const auto& entry : fs::recursive_directory_iterator(files_.run(""))) {
    EXPECT_EQ(entry.path().string().find(".tmp-"), std::string::npos) << entry.path();
  }
}

TEST_F(RunRecovery, AnotherBaseIsRefusedAndTheSameElsewhereIsNot) {
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe});
  run_init({.config = files_ / "config.json", .out = files_ / "other", .seed = 2});
  std::string error =
      refusal({.recipe = recipe, .overrides = {"train.steps=4", "model.path=" + (files_ / "other").string()}});
  EXPECT_NE(error.find("the base model"), std::string::npos) << error;
  EXPECT_NE(error.find("weights: "), std::string::npos) << error;
  fs::rename(files_ / "model", files_ / "moved");
  const std::string moved = "model.path=" + (files_ / "moved").string();
  EXPECT_EQ(run_train({.recipe = recipe, .overrides = {"train.steps=4", moved}}), 0);
  EXPECT_TRUE(file_has("log.txt", "resuming with another model.path"));
  expect_steps(4);
}

TEST_F(RunRecovery, ChangedDataAreRefusedAndMovedOnesAreNot) {
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe});
  fs::rename(files_ / "train.jsonl", files_ / "moved.jsonl");
  const std::string moved = "data.train=" + (files_ / "moved.jsonl").string();
  EXPECT_EQ(run_train({.recipe = recipe, .overrides = {"train.steps=4", moved}}), 0);
  files_.folder().write("moved.jsonl", read_text(files_ / "moved.jsonl") + "{\"input_ids\": [1, 2, 3]}\n");
  const std::string error = refusal({.recipe = recipe, .overrides = {"train.steps=5", moved}});
  EXPECT_NE(error.find("step-00000004"), std::string::npos) << error;
  expect_steps(4);
}

TEST_F(RunRecovery, WeightsComeBackWithoutTheAdapterOfTheRunFolder) {  // N3
  const std::string recipe = files_.recipe(kSmallLora);
  run_train({.recipe = recipe, .overrides = {"train.steps=2", "schedule.decay=constant"}});
  fs::remove_all(files_.run("adapter"));
  run_train({.recipe = recipe, .overrides = {"train.steps=4", "schedule.decay=constant"}});
  const std::string resumed = read_text(files_.run("adapter/adapter_model.safetensors"));
  fs::remove_all(files_ / "runs");
  run_train({.recipe = recipe, .overrides = {"train.steps=4", "schedule.decay=constant"}});
  EXPECT_TRUE(read_text(files_.run("adapter/adapter_model.safetensors")) == resumed);
}

TEST_F(RunRecovery, AResultReadByAnotherProcessHasTheSameLoss) {  // N1, N2
  for (const std::string& sections : {std::string(), kSmallLora}) {
    fs::remove_all(files_ / "runs");
    run_train({.recipe = files_.recipe(sections), .overrides = {"train.steps=2"}});
    run_train({.recipe = files_.recipe(sections)});  // the last step from the state of the second
    std::vector<std::string> arguments = {"eval",   "--json",
                                          "--set",  "data.sequence_length=16",
                                          "--set",  "model.compute=fp32",
                                          "--data", files_ / "eval.jsonl"};
    if (sections.empty()) {
      arguments.insert(arguments.end(), {"--model", files_.run("model")});
    } else {
      arguments.insert(arguments.end(), {"--model", files_ / "model", "--adapter", files_.run("adapter")});
    }
    const ProgramResult result = testing::run_asterism(arguments);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(nlohmann::json::parse(result.out).at("loss"), files_.report().at("eval_loss_after"));
  }
}

TEST_F(RunRecovery, ADryRunStatesTheBytesOfACheckpoint) {
  ::testing::internal::CaptureStderr();
  run_train({.recipe = files_.recipe(kSmallLora), .dry_run = true});
  const std::string log = ::testing::internal::GetCapturedStderr();
  run_train({.recipe = files_.recipe(kSmallLora)});
  long long total = 0, state = 0, numbers = 0, adapter = 0;
  const size_t line = log.find("a checkpoint takes ");
  ASSERT_NE(line, std::string::npos) << log;
  ASSERT_EQ(std::sscanf(log.c_str() + line,
                        "a checkpoint takes %lld bytes: %lld of weights and optimizer state for %lld trained numbers, "
                        "%lld of the adapter",
                        &total, &state, &numbers, &adapter),
            4)
      << log;
  const auto expect_close = [](long long stated, uint64_t written) {
    EXPECT_NEAR(static_cast<double>(stated), static_cast<double>(written), 0.05 * static_cast<double>(written));
  };
  expect_close(adapter, fs::file_size(files_.run("adapter/adapter_model.safetensors")));
  expect_close(state, fs::file_size(states().path_of(3) / "state.safetensors"));
  EXPECT_EQ(total, state + adapter);
  EXPECT_EQ(numbers, files_.report().at("parameters_trained"));
}

/// A whole run with a fault in one call that writes below the run folder and all after it; then the same command again
/// on a sound disk, which must leave the expected bytes in the file `result`. False when the run has no such call.
bool run_with_fault(const TrainingFiles& files, const TrainArgs& args, int64_t number, const std::string& result,
                    const std::string& expected) {
  fs::remove_all(files / "runs");
  fs::create_directories(files.run("checkpoints"));
  {
    const FileFaults faults(files.run(""), {.number = number, .error = number % 2 ? ENOSPC : EROFS, .stays = true});
    try {
      run_train(args);
    } catch (const RunError& error) {
      const std::string message = error.what();
      EXPECT_TRUE(message.find("No space left on device") != std::string::npos ||
                  message.find("Read-only file system") != std::string::npos)
          << message;
    }
    if (faults.count() < number) return false;
  }
  SCOPED_TRACE(number);
  const StateFolder states(files.run("checkpoints"));
  for (const int64_t step : states.steps()) checkpoint::read_train_state(states.path_of(step));
  EXPECT_EQ(run_train(args), 0);
  EXPECT_TRUE(read_text(files.run(result)) == expected);
  const auto metrics = files.metrics();
  EXPECT_EQ(metrics.size(), 3u);
  for (size_t i = 0; i < metrics.size(); ++i) EXPECT_EQ(metrics[i].at("step"), i + 1);
  return true;
}

TEST_F(RunRecovery, AFaultAnywhereInARunIsAClearErrorAndTheSameCommandGoesOn) {
  const int64_t stride = std::getenv("ASTERISM_LONG") != nullptr ? 17 : 101;
  for (const std::string& sections : {kSmallLora, std::string()}) {
    const TrainArgs args{.recipe = files_.recipe(sections), .overrides = {"checkpoint.every=1"}};
    fs::remove_all(files_ / "runs");
    run_train(args);
    const std::string result = sections.empty() ? "model/model.safetensors" : "adapter/adapter_model.safetensors";
    const std::string expected = read_text(files_.run(result));
    int64_t number = 1;
    while (run_with_fault(files_, args, number, result, expected)) number += stride;
    EXPECT_GT(number, 3 * stride);
  }
}

}  // namespace
}  // namespace asterism::cli
