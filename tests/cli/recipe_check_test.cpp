#include "asterism/cli/recipe_check.h"

#include <gtest/gtest.h>

#include <map>

namespace asterism::cli {
namespace {

struct Case {
  train::Recipe recipe;
  std::map<std::string, std::string> origins = {
      {"name", "f:1"}, {"model.path", "f:2"}, {"data.train", "f:3"}, {"train.steps", "f:4"}};

  Case() { recipe.train.steps = 10; }
  std::vector<std::string> check() const {
    return recipe_contradictions(recipe, "f", [this](const std::string& path) {
      const auto found = origins.find(path);
      return found == origins.end() ? std::string() : found->second;
    });
  }
};

TEST(RecipeCheck, AGoodRecipeHasNoContradictions) {
  Case good;
  good.recipe.train.batch = 10;
  good.recipe.train.micro_batch = 4;  // need not divide
  good.recipe.schedule.warmup_steps = 10;
  good.recipe.lora.emplace();
  EXPECT_TRUE(good.check().empty());
}

TEST(RecipeCheck, TrainedWeightsAreNotRoundedToAPackedFormat) {
  for (const train::Storage storage : {train::Storage::kFp8, train::Storage::kFp4}) {
    Case packed;
    packed.origins["model.storage"] = "f:9";
    packed.recipe.model.storage = storage;
    const auto problems = packed.check();
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_EQ(problems[0].rfind("f:9: model.storage: fp", 0), 0u) << problems[0];
    EXPECT_NE(problems[0].find("use auto, or add a section lora"), std::string::npos) << problems[0];
    packed.recipe.lora.emplace();
    EXPECT_TRUE(packed.check().empty());
  }
}

TEST(RecipeCheck, WarmUpIsNotComparedWithoutSteps) {
  Case epochs;
  epochs.recipe.train.steps = 0;
  epochs.recipe.train.epochs = 2;
  epochs.recipe.schedule.warmup_steps = 10;
  epochs.origins.erase("train.steps");
  epochs.origins["train.epochs"] = "f:4";
  EXPECT_TRUE(epochs.check().empty());
}

TEST(RecipeCheck, FindsEveryContradictionAtItsPlace) {
  Case bad;
  bad.origins.erase("name");
  bad.origins["train.batch"] = "f:5";
  bad.recipe.train.batch = 0;
  const auto problems = bad.check();
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].find("f: name is missing"), 0u) << problems[0];
  EXPECT_EQ(problems[1].find("f:5: train.micro_batch is 1"), 0u) << problems[1];
}

}  // namespace
}  // namespace asterism::cli
