#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "asterism/train/recipe.h"

namespace asterism::cli {

/// What stands behind a key, before anyone has asked what it means.
struct RecipeValue {
  enum class Kind { kScalar, kList, kNothing, kMap, kNested };  // kNested: a list that holds lists or maps
  using Entry = std::vector<std::pair<std::string, std::string>>;
  Kind kind = Kind::kNothing;
  std::vector<std::string> items;  // one of a scalar, any number of a list
  std::vector<Entry> entries;      // of a nested list: the keys and values of each map, of plain text under the key "".
                                   // Empty when anything is nested deeper.

  static RecipeValue scalar(std::string item) { return {Kind::kScalar, {std::move(item)}, {}}; }
  static RecipeValue list(std::vector<std::string> items) { return {Kind::kList, std::move(items), {}}; }
  static RecipeValue nested(std::vector<Entry> entries) { return {Kind::kNested, {}, std::move(entries)}; }
  bool operator==(const RecipeValue&) const = default;
};

/// The value for an error message: "abc", [a, b], nothing, a map.
std::string describe(const RecipeValue& value);

/// How a text is written that stands under the key `name` of a map in a list, or as an item of it when that is empty.
using QuoteItem = std::function<std::string(const std::string& name, const std::string& content)>;

/// The items of a nested list as YAML has them between [ and ].
std::string nested_text(const RecipeValue& value, const QuoteItem& quote = {});

/// One key of the recipe. The table of these is what parsing, overrides, printing and the reference in docs/recipe.md
/// go by.
struct RecipeKey {
  std::string path;      // "train.batch"; the keys of a run itself have no section: "name"
  std::string expected;  // the values it takes, in words: "a whole number, at least 1"
  bool required = false;
  bool is_text = false;  // written in quotes where plain YAML would read a number or a truth value

  /// Stores the value; false when it is not one of those expected, and then the recipe is as before.
  std::function<bool(const RecipeValue& value, train::Recipe& recipe)> set{};
  /// The value as `set` would read it. An empty text or list and a 0 that stands for "not given" are printed as such.
  std::function<RecipeValue(const train::Recipe& recipe)> get{};

  std::string section() const;  // "" without
  std::string name() const;
};

/// All keys, in the order in which they are printed.
const std::vector<RecipeKey>& recipe_keys();
/// nullptr when there is no such key.
const RecipeKey* find_key(const std::string& path);
/// Names of the sections, in order.
const std::vector<std::string>& recipe_sections();

/// The keys whose values come from the adapter when lora.from names one.
const std::vector<std::string>& keys_of_adapter();

/// The value to print, or nothing where the recipe does not have the key: keys of `lora` in full fine-tuning, those
/// that come from the adapter of lora.from, the one of steps and epochs that is not set, empty texts and lists.
std::optional<RecipeValue> printed_value(const RecipeKey& key, const train::Recipe& recipe);

}  // namespace asterism::cli
