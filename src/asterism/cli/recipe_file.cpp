#include "asterism/cli/recipe_file.h"

#include <algorithm>
#include <array>
#include <map>

#include "asterism/cli/recipe_check.h"
#include "asterism/cli/recipe_keys.h"
#include "asterism/cli/recipe_source.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism::cli {

namespace {

std::string joined(const std::vector<std::string>& parts, std::string_view separator) {
  std::string result;
  for (const std::string& part : parts) {
    if (!result.empty()) result += separator;
    result += part;
  }
  return result;
}

/// What could have been meant by a path that no key has. A key of the same name in another section comes first: most
/// often somebody has put the right key in the wrong place.
std::string suggestion(const std::string& path) {
  const std::string name = path.substr(path.find('.') == std::string::npos ? 0 : path.find('.') + 1);
  std::vector<std::string> known;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.name() == name) return key.path;
    known.push_back(key.path);
  }
  if (path.find('.') == std::string::npos)
    known.insert(known.end(), recipe_sections().begin(), recipe_sections().end());
  return nearest_name(path, known);
}

std::string unknown_key(const Setting& setting) {
  const std::string section = setting.path.substr(0, setting.path.find('.'));
  const bool in_section = std::ranges::find(recipe_sections(), section) != recipe_sections().end();
  std::vector<std::string> known;
  for (const RecipeKey& key : recipe_keys()) {
    if (key.section() == (in_section ? section : "")) known.push_back(key.name());
  }
  const std::string nearest = suggestion(setting.path);
  std::string message = text(setting.origin, ": unknown key ", setting.path);
  if (!nearest.empty()) message += text("; did you mean ", nearest, "?");
  if (in_section) return message + text(" Keys of ", section, ": ", joined(known, ", "));
  return message +
         text(" Keys outside of sections: ", joined(known, ", "), "; sections: ", joined(recipe_sections(), ", "));
}

/// Stores settings in the recipe and remembers where each came from.
class Assembler {
 public:
  void apply(const std::vector<Setting>& settings) {
    for (const Setting& setting : settings) apply(setting);
  }

  std::string origin_of(const std::string& path) const {
    const auto found = origins_.find(path);
    return found == origins_.end() ? "" : found->second;
  }

  train::Recipe recipe;
  std::vector<std::string> problems;

  void throw_if_any() const {
    if (!problems.empty()) throw InputError(joined(problems, "\n"));
  }

 private:
  void apply(const Setting& setting) {
    const RecipeKey* key = find_key(setting.path);
    if (key == nullptr) {
      problems.push_back(unknown_key(setting));
    } else if (key->set(setting.value, recipe)) {
      origins_[key->path] = setting.origin;
    } else {
      problems.push_back(
          text(setting.origin, ": ", key->path, ": expected ", key->expected, "; found ", describe(setting.value)));
    }
  }

  std::map<std::string, std::string> origins_;
};

/// Words that YAML readers take for something else than text when they stand without quotes.
constexpr std::array<std::string_view, 10> kReservedWords = {"null", "~",  "true", "false", "yes",
                                                             "no",   "on", "off",  "y",     "n"};

bool is_plain(const std::string& item) {
  const auto is_safe = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.' || c == '/';
  };
  std::string lower = item;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const bool starts_like_text = !item.empty() && (std::isalpha(static_cast<unsigned char>(item.front())) != 0 ||
                                                  item.front() == '/' || item.front() == '_');
  return starts_like_text && std::ranges::all_of(item, is_safe) &&
         std::ranges::find(kReservedWords, lower) == kReservedWords.end();
}

std::string quoted(const std::string& item) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string result = "\"";
  for (const char c : item) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (byte < 0x20 || byte == 0x7F) {
      result += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string yaml_text(const RecipeKey& key, const RecipeValue& value) {
  const auto written = [&](const std::string& item) { return key.is_text && !is_plain(item) ? quoted(item) : item; };
  const auto written_in_map = [&](const std::string& name, const std::string& content) {
    return name == "weight" ? content : written(content);
  };
  if (value.kind == RecipeValue::Kind::kNested) return "[" + nested_text(value, written_in_map) + "]";
  std::vector<std::string> items;
  for (const std::string& item : value.items) items.push_back(written(item));
  return value.kind == RecipeValue::Kind::kList ? "[" + joined(items, ", ") + "]" : items.front();
}

/// Calls `visit` with every key that the recipe has and its text.
template <typename Visit>
void for_each_printed(const train::Recipe& recipe, const Visit& visit) {
  for (const RecipeKey& key : recipe_keys()) {
    if (const auto value = printed_value(key, recipe)) visit(key, yaml_text(key, *value));
  }
}

}  // namespace

train::Recipe read_recipe(const std::filesystem::path& file, const std::vector<std::string>& overrides) {
  return parse_recipe(read_text(file), file.string(), overrides);
}

train::Recipe parse_recipe(std::string_view yaml, const std::string& origin,
                           const std::vector<std::string>& overrides) {
  Assembler assembler;
  assembler.apply(read_yaml(yaml, origin, assembler.problems));
  assembler.apply(read_overrides(overrides, assembler.problems));
  // A value that was not stored would give misleading findings about what is missing.
  assembler.throw_if_any();
  assembler.problems = recipe_contradictions(assembler.recipe, origin,
                                             [&](const std::string& path) { return assembler.origin_of(path); });
  assembler.throw_if_any();
  return assembler.recipe;
}

train::Recipe recipe_for_evaluation(const std::string& model, const std::vector<std::string>& data,
                                    const std::vector<std::string>& overrides) {
  Assembler assembler;
  assembler.recipe.model.path = model;
  assembler.recipe.data.eval = data;
  const std::vector<Setting> settings = read_overrides(overrides, assembler.problems);
  assembler.apply(settings);
  for (const Setting& setting : settings) {
    const RecipeKey* key = find_key(setting.path);
    if (key == nullptr || key->section() == "data" || key->section() == "model") continue;
    assembler.problems.push_back(
        text(setting.origin, ": an evaluation has no such setting; expected a key of the sections data and model"));
  }
  assembler.throw_if_any();
  return assembler.recipe;
}

std::string recipe_to_yaml(const train::Recipe& recipe) {
  std::string yaml, section;
  for_each_printed(recipe, [&](const RecipeKey& key, const std::string& value) {
    if (key.section() != section) {
      section = key.section();
      yaml += text("\n", section, ":\n");
    }
    yaml += text(section.empty() ? "" : "  ", key.name(), ": ", value, "\n");
  });
  return yaml;
}

std::string recipe_to_table(const train::Recipe& recipe) {
  size_t width = 0;
  for (const RecipeKey& key : recipe_keys()) width = std::max(width, key.path.size());
  std::string table;
  for_each_printed(recipe, [&](const RecipeKey& key, const std::string& value) {
    table += text("  ", key.path, std::string(width + 2 - key.path.size(), ' '), value, "\n");
  });
  return table;
}

}  // namespace asterism::cli
