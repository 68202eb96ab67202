#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "asterism/core/error.h"

namespace asterism::data {

/// A value inside a JSON file together with its place there, so that every error names file and member. Borrows the
/// value. Each accessor throws InputError when the value is not of the asked kind.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& place() const { return place_; }

  JsonPart at(const std::string& name) const;                   // a member that must exist
  std::optional<JsonPart> find(const std::string& name) const;  // nothing when absent or null
  JsonPart element(size_t index) const;                         // of an array
  size_t array_size() const;
  const std::string& as_string() const;
  bool as_flag() const;
  int64_t as_integer() const;
  /// The member as a flag, or `fallback` when it is absent or null.
  bool flag(const std::string& name, bool fallback) const;

  /// Throws InputError("<place>: <parts>").
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    input_error(place_, ": ", parts...);
  }

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace asterism::data
