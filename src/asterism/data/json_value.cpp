#include "asterism/data/json_value.h"

#include <algorithm>
#include <cstdlib>

namespace asterism::data {

JsonValue::JsonValue() = default;
JsonValue::JsonValue(bool value) : value_(value) {}
JsonValue::JsonValue(int64_t value) : value_(value) {}
JsonValue::JsonValue(double value) : value_(value) {}
JsonValue::JsonValue(BigInteger value) : value_(std::move(value)) {}
JsonValue::JsonValue(std::string value) : value_(std::move(value)) {}
JsonValue::JsonValue(const char* value) : value_(std::string(value)) {}
JsonValue::JsonValue(Array value) : value_(std::move(value)) {}
JsonValue::JsonValue(Object value) : value_(std::move(value)) {}

JsonValue JsonValue::object(std::initializer_list<std::pair<const char*, JsonValue>> members) {
  JsonValue result{Object{}};
  for (const auto& [key, value] : members) result.set(key, value);
  return result;
}

const char* JsonValue::type_name() const {
  if (is_null()) return "null";
  if (is_boolean()) return "boolean";
  if (is_number()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

double JsonValue::as_number() const {
  if (is_int64()) return static_cast<double>(as_int64());
  if (is_big_integer()) return std::strtod(as_big_integer().digits.c_str(), nullptr);
  return as_float();
}

size_t JsonValue::size() const {
  if (is_array()) return as_array().size();
  return is_object() ? as_object().size() : 0;
}

const JsonValue* JsonValue::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  const Object& members = as_object();
  const auto found = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.key == key; });
  return found == members.end() ? nullptr : &found->value;
}

const JsonValue& JsonValue::get(std::string_view key) const {
  static const JsonValue kNull;
  const JsonValue* found = find(key);
  return found == nullptr ? kNull : *found;
}

void JsonValue::set(std::string_view key, JsonValue value) {
  Object& members = as_object();
  const auto found = std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.key == key; });
  if (found != members.end()) {
    found->value = std::move(value);
  } else {
    members.push_back({std::string(key), std::move(value)});
  }
}

bool JsonValue::operator==(const JsonValue& other) const {
  return value_ == other.value_;
}

bool is_truthy(const JsonValue& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.as_boolean();
  if (value.is_number()) return value.as_number() != 0.0;
  if (value.is_string()) return !value.as_string().empty();
  return value.size() > 0;
}

}  // namespace asterism::data
