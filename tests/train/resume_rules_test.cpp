#include "asterism/train/resume_rules.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::train {
namespace {

using Json = nlohmann::ordered_json;
using testing::error_of;

TEST(ResumeRules, AreTheTableOfTheDocumentation) {
  const std::string page = read_text(std::filesystem::path(ASTERISM_SOURCE_DIR) / "docs" / "checkpoints.md");
  std::string table = "| key | may change | because |\n|---|---|---|\n";
  for (const ResumeRule& rule : resume_rules()) {
    table += text("| `", rule.key, "` | ", rule.may_change ? "yes" : "no", " | ", rule.why, " |\n");
  }
  EXPECT_NE(page.find(table), std::string::npos) << "docs/checkpoints.md needs this table:\n" << table;
}

TEST(ResumeRules, HaveEachKeyOnce) {
  std::set<std::string_view> keys;
  for (const ResumeRule& rule : resume_rules()) EXPECT_TRUE(keys.insert(rule.key).second) << rule.key;
}

TEST(CompareRecipes, ListsWhatChangedAndMay) {
  const Json saved = {{"seed", "1"}, {"optimizer.lr", "0.1"}, {"train.steps", "10"}, {"train.epochs", nullptr}};
  const Json wanted = {{"seed", "1"}, {"optimizer.lr", "0.2"}, {"train.steps", nullptr}, {"train.epochs", "3"}};
  const auto changes = compare_recipes(saved, wanted, "x");
  EXPECT_EQ(changes, (std::vector<std::string>{"train.steps: \"10\" in the checkpoint, null in the recipe",
                                               "train.epochs: null in the checkpoint, \"3\" in the recipe",
                                               "optimizer.lr: \"0.1\" in the checkpoint, \"0.2\" in the recipe"}));
  EXPECT_TRUE(compare_recipes(saved, saved, "x").empty());
}

TEST(CompareRecipes, RefusesEveryKeyThatMustStayAndNoOther) {
  for (const ResumeRule& rule : resume_rules()) {
    Json saved = {{std::string(rule.key), "a"}}, wanted = {{std::string(rule.key), "b"}};
    if (rule.may_change) {
      EXPECT_EQ(compare_recipes(saved, wanted, "x").size(), 1u) << rule.key;
      continue;
    }
    for (const Json& now : {wanted, Json::object()}) {
      const std::string error = error_of<InputError>([&] { compare_recipes(saved, now, "folder"); });
      EXPECT_NE(error.find(std::string(rule.key) + ": \"a\" in the checkpoint"), std::string::npos) << error;
      EXPECT_NE(error.find(rule.why), std::string::npos) << error;
      EXPECT_NE(error.find("folder"), std::string::npos) << error;
    }
  }
}

TEST(CompareRecipes, NamesAllThatMustNotChangeTogether) {
  const Json saved = Json::parse(R"({"seed": "1", "lora.targets": ["a"]})");
  const Json wanted = Json::parse(R"({"seed": "2", "lora.targets": ["b"]})");
  const std::string error = error_of<InputError>([&] { compare_recipes(saved, wanted, "x"); });
  EXPECT_NE(error.find("seed: \"1\""), std::string::npos) << error;
  EXPECT_NE(error.find("lora.targets: [\"a\"]"), std::string::npos) << error;
}

TEST(CompareRecipes, AKeyWithoutARuleMustNotChange) {
  EXPECT_THROW(compare_recipes({{"data.future", "1"}}, {{"data.future", "2"}}, "x"), InputError);
  EXPECT_THROW(compare_recipes({{"data.future", "1"}}, Json::object(), "x"), InputError);
}

}  // namespace
}  // namespace asterism::train
