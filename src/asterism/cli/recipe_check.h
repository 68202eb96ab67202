#pragma once

#include <functional>
#include <string>
#include <vector>

#include "asterism/train/recipe.h"

namespace asterism::cli {

/// Where a key was set ("run.yaml:12"), or "" when it has its default.
using OriginOf = std::function<std::string(const std::string& path)>;

/// What is missing from a recipe or cannot go together, a line each with the origins of the keys involved. `origin` is
/// the recipe as a whole. Empty when all is well.
std::vector<std::string> recipe_contradictions(const train::Recipe& recipe, const std::string& origin,
                                               const OriginOf& origin_of);

}  // namespace asterism::cli
