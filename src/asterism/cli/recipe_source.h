#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "asterism/cli/recipe_keys.h"

namespace asterism::cli {

/// A value as somebody has written it, and where.
struct Setting {
  std::string path;    // "train.batch"; not yet known to be a key
  std::string origin;  // "run.yaml:12", "--set train.batch=4"
  RecipeValue value;
};

/// The settings of a recipe in YAML, in the order of the text; what stands wrong in it is added to `problems`: sections
/// without keys in them, keys that are no text, keys written twice. An unknown section gives a setting with its name
/// alone as the path. InputError with line and column when the text is not YAML, is empty, is not a map or is more than
/// one document.
std::vector<Setting> read_yaml(std::string_view yaml, const std::string& origin, std::vector<std::string>& problems);

/// The setting of one "--set section.key=value". Text that begins with [ is read as a YAML list, any other as it stands
/// (so a pattern like *.jsonl needs no quotes for YAML). A problem when there is no = or no YAML list.
std::vector<Setting> read_overrides(const std::vector<std::string>& overrides, std::vector<std::string>& problems);

}  // namespace asterism::cli
