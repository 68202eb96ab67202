#include "asterism/cli/recipe_values.h"

#include <gtest/gtest.h>

#include "asterism/cli/recipe_file.h"
#include "asterism/cli/recipe_keys.h"
#include "asterism/train/resume_rules.h"

namespace asterism::cli {
namespace {

const std::string kRecipe =
    "name: run\nmodel: {path: m}\ndata: {train: [a.jsonl, b.jsonl]}\ntrain: {epochs: 2}\noptimizer: {lr: 1e-4}\n";

TEST(RecipeValues, HaveEveryKeyAsTheRecipeSpellsIt) {
  const auto values = recipe_values(parse_recipe(kRecipe, "recipe"));
  EXPECT_EQ(values.size(), recipe_keys().size());
  EXPECT_EQ(values.at("name"), "run");
  EXPECT_EQ(values.at("data.train"), (std::vector<std::string>{"a.jsonl", "b.jsonl"}));
  EXPECT_EQ(values.at("optimizer.lr"), "1.0e-04");
  EXPECT_EQ(values.at("train.epochs"), "2");
  for (const char* absent : {"train.steps", "model.tokenizer", "data.eval", "lora.rank", "lora.from"}) {
    EXPECT_TRUE(values.at(absent).is_null()) << absent;
  }
}

TEST(RecipeValues, HaveSourcesWithWeights) {
  const auto values = recipe_values(parse_recipe(
      "name: run\nmodel: {path: m}\ndata: {train: [{path: a.jsonl, weight: 2}]}\ntrain: {steps: 2}\n", "r"));
  EXPECT_EQ(values.at("data.train"), nlohmann::ordered_json::parse(R"([{"path": "a.jsonl", "weight": "2"}])"));
}

TEST(RecipeValues, HaveWhatComesFromAnAdapter) {
  train::Recipe recipe = parse_recipe(kRecipe + "lora: {from: adapter}\n", "recipe");
  recipe.lora->config.rank = 3;
  recipe.lora->config.targets = {"model.layers.0.mlp.gate"};
  const auto values = recipe_values(recipe);
  EXPECT_EQ(values.at("lora.from"), "adapter");
  EXPECT_EQ(values.at("lora.rank"), "3");
  EXPECT_EQ(values.at("lora.targets"), std::vector<std::string>{"model.layers.0.mlp.gate"});
}

TEST(ResumeRulesOfRecipe, AreOnePerKeyInTheOrderOfTheRecipe) {
  std::vector<std::string> keys, ruled;
  for (const RecipeKey& key : recipe_keys()) keys.push_back(key.path);
  for (const train::ResumeRule& rule : train::resume_rules()) ruled.emplace_back(rule.key);
  EXPECT_EQ(ruled, keys) << "a new key needs a rule in train/resume_rules.cpp: may a resumed run change it?";
}

}  // namespace
}  // namespace asterism::cli
