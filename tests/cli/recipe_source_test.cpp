#include "asterism/cli/recipe_source.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"

namespace asterism::cli {
namespace {

TEST(RecipeSource, FlattensSectionsAndRemembersLines) {
  std::vector<std::string> problems;
  const auto settings = read_yaml("name: a\n\ntrain:\n  batch: 2\n  odd: {x: 1}\nother: [1, 'b c']\n", "f", problems);
  ASSERT_EQ(settings.size(), 4u);
  EXPECT_EQ(settings[0].path, "name");
  EXPECT_EQ(settings[0].origin, "f:1");
  EXPECT_EQ(settings[1].path, "train.batch");
  EXPECT_EQ(settings[1].origin, "f:4");
  EXPECT_EQ(settings[1].value, RecipeValue::scalar("2"));
  EXPECT_EQ(settings[2].value.kind, RecipeValue::Kind::kMap);
  EXPECT_EQ(settings[3].value, RecipeValue::list({"1", "b c"}));
  EXPECT_TRUE(problems.empty());
}

TEST(RecipeSource, AnEmptySectionHasNoSettings) {
  std::vector<std::string> problems;
  EXPECT_TRUE(read_yaml("train:\nlog: {}\n", "f", problems).empty());
  EXPECT_TRUE(problems.empty());
}

TEST(RecipeSource, OverridesAreTextUnlessTheyAreLists) {
  std::vector<std::string> problems;
  const auto settings = read_overrides({"a.b=*.jsonl", "c=[x, \"*.y\"]", "d=e=f", "g="}, problems);
  ASSERT_EQ(settings.size(), 4u);
  EXPECT_EQ(settings[0].value, RecipeValue::scalar("*.jsonl"));
  EXPECT_EQ(settings[0].origin, "--set a.b=*.jsonl");
  EXPECT_EQ(settings[1].value, RecipeValue::list({"x", "*.y"}));
  EXPECT_EQ(settings[2].path, "d");
  EXPECT_EQ(settings[2].value, RecipeValue::scalar("e=f"));
  EXPECT_EQ(settings[3].value, RecipeValue::scalar(""));
  EXPECT_TRUE(problems.empty());
}

}  // namespace
}  // namespace asterism::cli
