#include "asterism/cli/recipe_keys.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism::cli {
namespace {

TEST(RecipeKeys, PathsAreUniqueAndFound) {
  std::set<std::string> paths;
  for (const RecipeKey& key : recipe_keys()) {
    EXPECT_TRUE(paths.insert(key.path).second) << key.path;
    EXPECT_EQ(find_key(key.path), &key);
  }
  EXPECT_EQ(find_key("train.nothing"), nullptr);
}

TEST(RecipeKeys, SectionsComeInOneBlockEach) {
  std::set<std::string> unique(recipe_sections().begin(), recipe_sections().end());
  EXPECT_EQ(unique.size(), recipe_sections().size());
  EXPECT_TRUE(unique.contains("optimizer"));
  EXPECT_FALSE(unique.contains(""));
}

TEST(RecipeKeys, ARefusedValueLeavesTheRecipeAsItWas) {
  for (const RecipeKey& key : recipe_keys()) {
    for (const RecipeValue& bad : {RecipeValue{}, RecipeValue{RecipeValue::Kind::kMap, {}, {}}, RecipeValue::nested({}),
                                   RecipeValue::list({})}) {
      train::Recipe recipe;
      EXPECT_FALSE(key.set(bad, recipe)) << key.path << " takes " << describe(bad);
      EXPECT_FALSE(recipe.lora) << key.path;
    }
  }
}

TEST(RecipeKeys, AnEffortIsAWordOrANumber) {
  const RecipeKey& key = *find_key("data.reasoning_effort");
  train::Recipe recipe;
  for (const char* value : {"low", "1", "75", "100"}) {
    EXPECT_TRUE(key.set(RecipeValue::scalar(value), recipe)) << value;
    EXPECT_EQ(key.get(recipe), RecipeValue::scalar(value));
  }
  for (const char* value : {"0", "101", "-5", "1.5", "much", ""}) {
    EXPECT_FALSE(key.set(RecipeValue::scalar(value), recipe)) << value;
  }
  EXPECT_EQ(recipe.data.reasoning_effort, "100");
}

TEST(RecipeKeys, EveryValueReadsAsItWasPrinted) {
  train::Recipe source;
  source.name = "demo";
  source.output = "out";
  source.model.path = "base";
  source.model.tokenizer = "tok";
  source.data.train = {{"a", 0.5}, {"b"}};
  source.data.eval = {"b", "c"};
  source.lora.emplace().from = "adapter";
  source.lora->config.modules_to_save = {"lm_head"};
  source.train.steps = 7;
  source.train.epochs = 0.1;
  train::Recipe target;
  for (const RecipeKey& key : recipe_keys()) {
    const RecipeValue value = key.get(source);
    EXPECT_TRUE(key.set(value, target)) << key.path << " does not take " << describe(value);
    EXPECT_EQ(key.get(target), value) << key.path;
  }
}

/// Rows "| `train.batch` | values | default | meaning |" of the reference.
struct Reference {
  std::set<std::string> rows, keys;
};

Reference read_reference() {
  Reference reference;
  std::istringstream lines(read_text(ASTERISM_SOURCE_DIR "/docs/recipe.md"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    reference.keys.insert(line.substr(3, line.find('`', 3) - 3));
    reference.rows.insert(line);
  }
  return reference;
}

std::string default_of(const RecipeKey& key) {
  if (key.required) return "required";
  train::Recipe recipe;
  const RecipeValue value = key.get(recipe);
  if (value.items.empty() || value.items.front().empty()) return "none";
  if (key.path == "train.steps" || key.path == "train.epochs") return "none";
  return value.kind == RecipeValue::Kind::kList ? describe(value) : value.items.front();
}

std::string escaped(std::string words) {
  for (size_t at = words.find('|'); at != std::string::npos; at = words.find('|', at + 2)) words.insert(at, "\\");
  return words;
}

TEST(RecipeKeys, TheReferenceNamesEveryKeyWithItsValuesAndDefault) {
  const Reference reference = read_reference();
  std::set<std::string> known;
  for (const RecipeKey& key : recipe_keys()) {
    known.insert(key.path);
    const std::string begin = text("| `", key.path, "` | ", escaped(key.expected), " | ", default_of(key), " | ");
    const auto row = reference.rows.lower_bound(begin);
    EXPECT_TRUE(row != reference.rows.end() && row->starts_with(begin) && row->size() > begin.size() + 2)
        << "docs/recipe.md needs a row that begins with\n"
        << begin;
  }
  EXPECT_EQ(reference.keys, known);
}

}  // namespace
}  // namespace asterism::cli
