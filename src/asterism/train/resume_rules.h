#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace asterism::train {

/// Whether a key of the recipe may have another value when a run goes on from a checkpoint. docs/checkpoints.md has the
/// same table.
struct ResumeRule {
  std::string_view key;
  bool may_change = false;
  std::string_view why;
};

/// One rule for every key of a recipe, in the order of the recipe.
const std::vector<ResumeRule>& resume_rules();

/// Compares the recipes of a checkpoint and of the run that wants to go on from it: objects of key -> value, null where
/// a recipe does not have the key. Returns a line for each change that is allowed. InputError that lists those that are
/// not; a key without a rule must not change.
std::vector<std::string> compare_recipes(const nlohmann::ordered_json& saved, const nlohmann::ordered_json& wanted,
                                         const std::string& origin);

}  // namespace asterism::train
