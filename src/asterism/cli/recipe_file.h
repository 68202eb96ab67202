#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/train/recipe.h"

namespace asterism::cli {

/// Reads a recipe: defaults, then the file, then the overrides ("section.key=value", in order). Relative paths in it
/// are relative to the current directory; nothing is opened but the recipe itself.
/// InputError that lists everything wrong with it, a line each: file and line, key, what was expected and found, the
/// nearest known key. Wrong are unknown, repeated and missing keys, values of the wrong type or out of range, and
/// combinations that cannot be (recipe_check.h).
train::Recipe read_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides = {});

/// The same from the text of a recipe; `origin` stands for the file in messages.
train::Recipe parse_recipe(std::string_view yaml, const std::string& origin,
                           const std::vector<std::string>& overrides = {});

/// The settings of an evaluation without a recipe: the defaults, `model` as model.path, `data` as data.eval, then the
/// overrides, which may be keys of the sections data and model. InputError as above.
train::Recipe recipe_for_evaluation(const std::string& model, const std::vector<std::string>& data,
                                    const std::vector<std::string>& overrides);

/// The recipe with every key that applies to it, in a fixed order: parse_recipe reads the same recipe from it.
std::string recipe_to_yaml(const train::Recipe& recipe);

/// The same as an aligned table for a console.
std::string recipe_to_table(const train::Recipe& recipe);

}  // namespace asterism::cli
