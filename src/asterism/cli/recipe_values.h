#pragma once

#include <nlohmann/json.hpp>

#include "asterism/train/recipe.h"

namespace asterism::cli {

/// Every key of a recipe with its value as the recipe file would spell it: text, a list of texts, or null where the
/// recipe does not have the key. What a checkpoint records and train/resume_rules.h compares.
nlohmann::ordered_json recipe_values(const train::Recipe& recipe);

}  // namespace asterism::cli
