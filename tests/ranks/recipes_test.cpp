// recipes/ranks: every recipe is fine for the number of ranks that it is written for, and its script starts it.
#include <gtest/gtest.h>
#include <unistd.h>

#include "asterism/core/error.h"
#include "tests/cli/training_files.h"
#include "tests/dist/rank_runs.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::RankRun;

const std::string kRoot = ASTERISM_SOURCE_DIR;

/// Settings that put a tiny model and token rows in the place of those of the recipes.
std::vector<std::string> tiny_settings(const TrainingFiles& files) {
  std::vector<std::string> words;
  for (const auto& [key, name] : {std::pair("model.path", "model"),
                                  {"data.train", "train.jsonl"},
                                  {"data.eval", "eval.jsonl"},
                                  {"output", "runs"}}) {
    words.insert(words.end(), {"--set", text(key, "=", (files / name).string())});
  }
  return words;
}

struct RankRecipe {
  const char* name;
  int ranks;
  const char* mesh;  // said of it
};

void PrintTo(const RankRecipe& recipe, std::ostream* out) {
  *out << recipe.name;
}

class RankRecipes : public ::testing::TestWithParam<RankRecipe> {};

TEST_P(RankRecipes, FitTheirNumberOfRanks) {
  const TrainingFiles files;
  std::vector<std::string> arguments = {"train", kRoot + "/recipes/ranks/" + GetParam().name + ".yaml", "--dry-run",
                                        "--ranks", std::to_string(GetParam().ranks)};
  const std::vector<std::string> settings = tiny_settings(files);
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  const ProgramResult ended = testing::run_asterism(arguments);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find(GetParam().mesh), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("dry run: the recipe, the model and the data are fine"), std::string::npos) << ended.err;
  EXPECT_FALSE(fs::exists(files / "runs"));
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, RankRecipes,
    ::testing::Values(RankRecipe{"one_machine", 4, "4 ranks: dense weights split over 4 (shard), 1 copy (replicate)"},
                      RankRecipe{"slurm", 32, "32 ranks: dense weights split over 8 (shard), 4 copies (replicate)"},
                      RankRecipe{"torchrun", 16, "16 ranks: dense weights split over 16 (shard), 1 copy (replicate)"}),
    [](const auto& info) { return std::string(info.param.name); });

/// Runs a script of recipes/ranks from the root of the repository, with `settings` in its environment.
ProgramResult run_script(const std::string& name, const TrainingFiles& files, const std::string& settings) {
  std::string command = text("cd ", kRoot, " && ASTERISM=", ASTERISM_BINARY_DIR, "/asterism ", settings,
                             " exec recipes/ranks/", name, " --dry-run");
  for (const std::string& word : tiny_settings(files)) command += " " + word;
  command += " --set parallel.expert=2 --set parallel.shard=auto --set parallel.replicate=auto";
  RankRun run({"OMP_NUM_THREADS=1"});
  return run.start_program(fs::relative("/bin/sh", ASTERISM_BINARY_DIR), {"-c", command}).result();
}

void expect_dry_run_of_two(const ProgramResult& ended) {
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("2 ranks: dense weights split over 2 (shard)"), std::string::npos) << ended.err;
  // The first rank speaks for all.
  const size_t first = ended.out.find("\nparallel:");
  EXPECT_NE(first, std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("\nparallel:", first + 1), std::string::npos) << ended.out;
}

TEST(RankScripts, TheJobScriptStartsItsRecipeUnderSlurm) {
  const TrainingFiles files;
  // Stands for srun: two tasks with the variables that it sets.
  const fs::path srun = files.folder().write(
      "srun", text("#!/bin/sh\nshift\nexport SLURM_JOB_ID=", ::getpid(),
                   " SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 "
                   "SLURM_STEP_NODELIST=localhost\n",
                   "SLURM_PROCID=1 SLURM_LOCALID=1 \"$@\" &\n", "SLURM_PROCID=0 SLURM_LOCALID=0 \"$@\" && wait $!\n"));
  fs::permissions(srun, fs::perms::owner_all);
  expect_dry_run_of_two(run_script("slurm.sh", files, text("PATH=", files.folder().path().string(), ":$PATH")));
}

TEST(RankScripts, TheOtherScriptStartsItsRecipeUnderTorchrun) {
  const fs::path torchrun = kRoot + "/.venv/bin/torchrun";
  if (!fs::exists(torchrun)) GTEST_SKIP() << torchrun << " is not here: run make setup";
  const TrainingFiles files;
  expect_dry_run_of_two(run_script(
      "torchrun.sh", files,
      text("TORCHRUN=", torchrun.string(), " RANKS_PER_NODE=2 PORT=", testing::free_port(), " RUN=test-", ::getpid())));
}

}  // namespace
}  // namespace asterism::cli
