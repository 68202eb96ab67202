#include "asterism/data/tool_schema.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>
#include <vector>

#include "asterism/core/error.h"
#include "asterism/data/excerpt.h"
#include "asterism/data/python_json.h"

namespace asterism::data {
namespace {

constexpr size_t kShownValue = 40;

std::string shown(const JsonValue& value) {
  return readable_prefix(to_json(value), kShownValue);
}

/// Whether the value is of a type by its name; names that JSON Schema does not know fit everything.
bool is_of_type(const JsonValue& value, std::string name) {
  // Some providers spell types in capitals.
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name == "string") return value.is_string();
  if (name == "number") return value.is_number();
  if (name == "boolean") return value.is_boolean();
  if (name == "array") return value.is_array();
  if (name == "object") return value.is_object();
  if (name == "null") return value.is_null();
  if (name == "integer") {
    return value.is_int64() || value.is_big_integer() ||
           (value.is_float() && std::floor(value.as_float()) == value.as_float());
  }
  return true;
}

std::string type_mismatch(const JsonValue& value, const JsonValue& schema, const std::string& place) {
  const JsonValue& type = schema.get("type");
  const bool nullable = schema.get("nullable") == JsonValue(true);
  if (value.is_null() && nullable) return {};
  std::vector<std::string> names;
  if (type.is_string()) names.push_back(type.as_string());
  if (type.is_array()) {
    for (const JsonValue& name : type.as_array()) {
      if (name.is_string()) names.push_back(name.as_string());
    }
  }
  const auto fits = [&](const std::string& name) { return is_of_type(value, name); };
  if (names.empty() || std::any_of(names.begin(), names.end(), fits)) return {};
  std::string expected;
  for (const std::string& name : names) expected += (expected.empty() ? "" : " or ") + name;
  return text(place, " is ", shown(value), ", not of type ", expected);
}

std::string choice_mismatch(const JsonValue& value, const JsonValue& schema, const std::string& place) {
  const JsonValue& choices = schema.get("enum");
  if (choices.is_array()) {
    const auto& list = choices.as_array();
    if (std::find(list.begin(), list.end(), value) == list.end()) {
      return text(place, " is ", shown(value), ", not one of ", shown(choices));
    }
  }
  const JsonValue* constant = schema.find("const");
  if (constant != nullptr && !(value == *constant))
    return text(place, " is ", shown(value), ", not ", shown(*constant));
  return {};
}

std::string object_mismatch(const JsonValue& value, const JsonValue& schema, const std::string& place) {
  const JsonValue& required = schema.get("required");
  if (required.is_array()) {
    for (const JsonValue& key : required.as_array()) {
      if (key.is_string() && value.find(key.as_string()) == nullptr) {
        return text(place, " has no ", readable_prefix(key.as_string(), kShownValue), ", which is required");
      }
    }
  }
  const JsonValue& properties = schema.get("properties");
  if (!properties.is_object()) return {};
  const JsonValue& others = schema.get("additionalProperties");
  for (const auto& [key, member] : value.as_object()) {
    const std::string member_place = place + "." + readable_prefix(key, kShownValue);
    const JsonValue* property = properties.find(key);
    if (property == nullptr && others.is_object()) property = &others;
    if (property != nullptr) {
      std::string mismatch = schema_mismatch(member, *property, member_place);
      if (!mismatch.empty()) return mismatch;
    } else if (!(others == JsonValue(true))) {
      return member_place + " is not declared";
    }
  }
  return {};
}

std::string array_mismatch(const JsonValue& value, const JsonValue& schema, const std::string& place) {
  const JsonValue& items = schema.get("items");
  if (!items.is_object()) return {};
  const auto& elements = value.as_array();
  for (size_t i = 0; i < elements.size(); ++i) {
    std::string mismatch = schema_mismatch(elements[i], items, text(place, "[", i, "]"));
    if (!mismatch.empty()) return mismatch;
  }
  return {};
}

std::string combination_mismatch(const JsonValue& value, const JsonValue& schema, const std::string& place) {
  const JsonValue& all = schema.get("allOf");
  if (all.is_array()) {
    for (const JsonValue& part : all.as_array()) {
      std::string mismatch = schema_mismatch(value, part, place);
      if (!mismatch.empty()) return mismatch;
    }
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const JsonValue& options = schema.get(key);
    if (!options.is_array() || options.size() == 0) continue;
    const auto fits = [&](const JsonValue& option) { return schema_mismatch(value, option, place).empty(); };
    if (std::none_of(options.as_array().begin(), options.as_array().end(), fits)) {
      return text(place, " is ", shown(value), ", which fits none of ", key);
    }
  }
  return {};
}

}  // namespace

std::string schema_mismatch(const JsonValue& value, const JsonValue& schema, const std::string& place) {
  if (!schema.is_object()) return {};
  std::string mismatch = type_mismatch(value, schema, place);
  if (mismatch.empty()) mismatch = choice_mismatch(value, schema, place);
  if (mismatch.empty() && value.is_object()) mismatch = object_mismatch(value, schema, place);
  if (mismatch.empty() && value.is_array()) mismatch = array_mismatch(value, schema, place);
  if (mismatch.empty()) mismatch = combination_mismatch(value, schema, place);
  return mismatch;
}

}  // namespace asterism::data
