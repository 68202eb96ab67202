#include "asterism/cli/recipe_source.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>

#include "asterism/core/error.h"

namespace asterism::cli {

namespace {

bool is_section(const std::string& name) {
  return std::ranges::find(recipe_sections(), name) != recipe_sections().end();
}

/// A list whose items are not all plain text.
RecipeValue nested_value(const YAML::Node& node) {
  RecipeValue value = RecipeValue::nested({});
  for (const YAML::Node& item : node) {
    RecipeValue::Entry& entry = value.entries.emplace_back();
    if (item.IsScalar()) {
      entry.emplace_back("", item.Scalar());
      continue;
    }
    if (!item.IsMap()) return RecipeValue::nested({});
    for (const auto& pair : item) {
      if (!pair.first.IsScalar() || !pair.second.IsScalar()) return RecipeValue::nested({});
      entry.emplace_back(pair.first.Scalar(), pair.second.Scalar());
    }
  }
  return value;
}

RecipeValue value_of(const YAML::Node& node) {
  RecipeValue value;
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return RecipeValue::scalar(node.Scalar());
    case YAML::NodeType::Map:
      value.kind = RecipeValue::Kind::kMap;
      return value;
    case YAML::NodeType::Sequence:
      break;
    default:
      return value;
  }
  const auto is_scalar = [](const YAML::Node& item) { return item.IsScalar(); };
  if (!std::all_of(node.begin(), node.end(), is_scalar)) return nested_value(node);
  value.kind = RecipeValue::Kind::kList;
  for (const YAML::Node& item : node) value.items.push_back(item.Scalar());
  return value;
}

class YamlReader {
 public:
  YamlReader(const std::string& origin, std::vector<std::string>& problems) : origin_(origin), problems_(problems) {}

  std::vector<Setting> read(const YAML::Node& document) {
    for (const auto& entry : document) read_top(entry.first, entry.second);
    return std::move(settings_);
  }

 private:
  std::string place(const YAML::Node& node) const { return text(origin_, ":", node.Mark().line + 1); }

  /// The key's name when it is text that has not been seen below `section` before.
  std::optional<std::string> key_name(const YAML::Node& key, const std::string& section) {
    if (!key.IsScalar()) {
      problems_.push_back(text(place(key), ": a key must be plain text"));
      return std::nullopt;
    }
    const std::string path = section.empty() ? key.Scalar() : section + "." + key.Scalar();
    const auto [first, is_new] = first_seen_.emplace(path, place(key));
    if (is_new) return path;
    problems_.push_back(text(place(key), ": ", path, " is written twice, first at ", first->second, "; remove one"));
    return std::nullopt;
  }

  void read_top(const YAML::Node& key, const YAML::Node& value) {
    const auto name = key_name(key, "");
    if (!name) return;
    if (!is_section(*name)) {
      settings_.push_back({*name, place(key), value_of(value)});
      return;
    }
    if (value.IsMap()) {
      for (const auto& entry : value) read_key(*name, entry.first, entry.second);
      if (*name == "lora" && value.size() == 0) add_problem_of_empty_lora(key);
    } else if (!value.IsNull()) {
      problems_.push_back(text(place(key), ": ", *name, " is a section: expected indented keys below it, found ",
                               describe(value_of(value))));
    } else if (*name == "lora") {
      add_problem_of_empty_lora(key);
    }
  }

  void read_key(const std::string& section, const YAML::Node& key, const YAML::Node& value) {
    if (const auto path = key_name(key, section)) settings_.push_back({*path, place(key), value_of(value)});
  }

  /// Whether an empty section asks for LoRA is anyone's guess.
  void add_problem_of_empty_lora(const YAML::Node& key) {
    problems_.push_back(text(place(key),
                             ": lora has no keys; write at least lora.rank, or remove the section for full "
                             "fine-tuning"));
  }

  const std::string& origin_;
  std::vector<std::string>& problems_;
  std::map<std::string, std::string> first_seen_;
  std::vector<Setting> settings_;
};

YAML::Node load_document(std::string_view yaml, const std::string& origin) {
  std::vector<YAML::Node> documents;
  try {
    documents = YAML::LoadAll(std::string(yaml));
  } catch (const YAML::Exception& error) {
    input_error(origin, ":", error.mark.line + 1, ":", error.mark.column + 1, ": not valid YAML: ", error.msg,
                "; keys are indented by spaces, and a text that begins with one of * & ! % @ [ { or has \": \" in it "
                "needs quotes");
  }
  if (documents.empty() || documents.front().IsNull()) {
    input_error(origin, ": the recipe is empty; it needs at least name, model.path, data.train and train.steps");
  }
  if (documents.size() > 1) {
    input_error(origin, ": expected one YAML document, found ", documents.size(), "; remove the lines of ---");
  }
  if (!documents.front().IsMap()) {
    input_error(origin, ":", documents.front().Mark().line + 1,
                ": expected keys and sections (\"name: my-run\"), found ", describe(value_of(documents.front())));
  }
  return documents.front();
}

}  // namespace

std::vector<Setting> read_yaml(std::string_view yaml, const std::string& origin, std::vector<std::string>& problems) {
  const YAML::Node document = load_document(yaml, origin);
  try {
    return YamlReader(origin, problems).read(document);
  } catch (const YAML::Exception& error) {
    input_error(origin, ":", error.mark.line + 1, ": ", error.msg);
  }
}

std::vector<Setting> read_overrides(const std::vector<std::string>& overrides, std::vector<std::string>& problems) {
  std::vector<Setting> settings;
  for (const std::string& argument : overrides) {
    const std::string origin = "--set " + argument;
    const size_t equals = argument.find('=');
    if (equals == std::string::npos || equals == 0) {
      problems.push_back(text(origin, ": expected section.key=value"));
      continue;
    }
    const std::string path = argument.substr(0, equals), value = argument.substr(equals + 1);
    const auto same_path = [&](const Setting& setting) { return setting.path == path; };
    if (std::ranges::any_of(settings, same_path)) {
      problems.push_back(text(origin, ": ", path, " is set twice on the command line; remove one"));
      continue;
    }
    if (!value.starts_with('[')) {
      settings.push_back({path, origin, RecipeValue::scalar(value)});
      continue;
    }
    try {
      settings.push_back({path, origin, value_of(YAML::Load(value))});
    } catch (const YAML::Exception& error) {
      problems.push_back(text(origin, ": not a list in YAML: ", error.msg));
    }
  }
  return settings;
}

}  // namespace asterism::cli
