#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace asterism::data {

/// A JSON value as Python's json module holds it: members in their order, whole numbers of any size apart from floats.
/// nlohmann's value keeps no whole number beyond 64 bits and turns it into a float, which changes tool schemas and
/// arguments. The as_... accessors throw std::bad_variant_access for another kind: ask first.
class JsonValue {
 public:
  /// A whole number beyond int64_t: decimal digits, perhaps after a minus.
  struct BigInteger {
    std::string digits;
    bool operator==(const BigInteger&) const = default;
  };
  struct Member;
  using Array = std::vector<JsonValue>;
  using Object = std::vector<Member>;  // every key once

  JsonValue();  // null
  JsonValue(bool value);
  JsonValue(int value) : JsonValue(int64_t{value}) {}
  JsonValue(int64_t value);
  JsonValue(double value);
  JsonValue(BigInteger value);
  JsonValue(std::string value);
  JsonValue(const char* value);
  JsonValue(Array value);
  JsonValue(Object value);
  static JsonValue object(std::initializer_list<std::pair<const char*, JsonValue>> members = {});

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_boolean() const { return std::holds_alternative<bool>(value_); }
  bool is_int64() const { return std::holds_alternative<int64_t>(value_); }
  bool is_big_integer() const { return std::holds_alternative<BigInteger>(value_); }
  bool is_float() const { return std::holds_alternative<double>(value_); }
  bool is_number() const { return is_int64() || is_big_integer() || is_float(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  /// "null", "boolean", "number", "string", "array" or "object", for messages.
  const char* type_name() const;

  bool as_boolean() const { return std::get<bool>(value_); }
  int64_t as_int64() const { return std::get<int64_t>(value_); }
  const BigInteger& as_big_integer() const { return std::get<BigInteger>(value_); }
  double as_float() const { return std::get<double>(value_); }
  double as_number() const;  // of any number, rounded to a double
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  /// Elements or members; 0 for every other kind.
  size_t size() const;
  /// The member of an object, nullptr when there is none or this is no object.
  const JsonValue* find(std::string_view key) const;
  /// The same, or null.
  const JsonValue& get(std::string_view key) const;
  /// Sets a member of an object; a new one comes last.
  void set(std::string_view key, JsonValue value);

  bool operator==(const JsonValue&) const;

 private:
  std::variant<std::monostate, bool, int64_t, BigInteger, double, std::string, Array, Object> value_;
};

struct JsonValue::Member {
  std::string key;
  JsonValue value;
  bool operator==(const Member&) const = default;
};

/// Python's truth of a value: null, false, 0, "", [] and {} count as absent.
bool is_truthy(const JsonValue& value);

}  // namespace asterism::data
