#include <gtest/gtest.h>

#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using testing::ProgramResult;
using testing::run_asterism;
using testing::TemporaryFolder;

void expect_usage_error(const std::vector<std::string>& arguments, const std::string& fragment) {
  const ProgramResult result = run_asterism(arguments);
  EXPECT_EQ(result.exit_code, kWrongInput) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.last_error_line().find(fragment), std::string::npos) << "expected \"" << fragment << "\" in\n"
                                                                        << result.err;
}

TEST(TrainingCommands, TrainReportsWhatIsWrongInTheRecipe) {
  const TemporaryFolder folder;
  const std::string recipe = folder.write("run.yaml", "name: a\nmodel: {path: absent}\ndata: {train: b}\n");
  expect_usage_error({"train", recipe}, "neither train.steps nor train.epochs is set");
  expect_usage_error({"train", recipe, "--set", "train.stepz=3"}, "did you mean train.steps?");
  expect_usage_error({"train", recipe, "--set", "train.steps=3", "--set", "seed=1"}, "absent");
  expect_usage_error({"train", folder / "no.yaml"}, "no.yaml");
  expect_usage_error({"train"}, "RECIPE is required");
  EXPECT_EQ(folder.entries(), std::set<std::string>{"run.yaml"});
}

TEST(TrainingCommands, EvalNeedsModelAndData) {
  expect_usage_error({"eval", "--model", "absent"}, "--data is required");
  expect_usage_error({"eval", "--model", "absent", "--data", "x.jsonl"}, "absent");
  expect_usage_error({"eval", "--model", "absent", "--data", "x", "--set", "train.batch=3"}, "data and model");
}

TEST(TrainingCommands, GenerateTakesExactlyOneKindOfPrompt) {
  expect_usage_error({"generate", "--model", "absent"}, "--prompt");
  expect_usage_error({"generate", "--model", "absent", "--prompt", "a", "--messages", "b"}, "--prompt");
  expect_usage_error({"generate", "--model", "absent", "--prompt", "a", "--top-p", "1.5"}, "from 0 to 1; found 1.5");
  expect_usage_error({"generate", "--model", "absent", "--prompt", "a", "--max-tokens", "0"}, "at least 1");
}

}  // namespace
}  // namespace asterism::cli
