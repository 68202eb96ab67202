#include "asterism/cli/recipe_values.h"

#include "asterism/cli/recipe_keys.h"

namespace asterism::cli {

namespace {

nlohmann::ordered_json entry_value(const RecipeValue::Entry& entry) {
  if (entry.size() == 1 && entry.front().first.empty()) return entry.front().second;
  nlohmann::ordered_json value = nlohmann::ordered_json::object();
  for (const auto& [name, content] : entry) value[name] = content;
  return value;
}

}  // namespace

nlohmann::ordered_json recipe_values(const train::Recipe& recipe) {
  // What comes from an adapter is not printed, but it is part of the run.
  train::Recipe own = recipe;
  if (own.lora) own.lora->from.clear();
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const RecipeKey& key : recipe_keys()) {
    const auto value = printed_value(key, key.path == "lora.from" ? recipe : own);
    if (!value) {
      values[key.path] = nullptr;
    } else if (value->kind == RecipeValue::Kind::kScalar) {
      values[key.path] = value->items.front();
    } else {
      values[key.path] = value->items;
      for (const auto& entry : value->entries) values[key.path].push_back(entry_value(entry));
    }
  }
  return values;
}

}  // namespace asterism::cli
