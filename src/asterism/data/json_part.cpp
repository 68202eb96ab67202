#include "asterism/data/json_part.h"

#include <nlohmann/json.hpp>

namespace asterism::data {

JsonPart JsonPart::at(const std::string& name) const {
  if (!value_->is_object()) fail("expected an object, found ", value_->type_name());
  const auto member = value_->find(name);
  if (member == value_->end()) fail("member \"", name, "\" is missing");
  return {*member, place_ + "." + name};
}

std::optional<JsonPart> JsonPart::find(const std::string& name) const {
  if (!value_->is_object()) fail("expected an object, found ", value_->type_name());
  const auto member = value_->find(name);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return JsonPart(*member, place_ + "." + name);
}

JsonPart JsonPart::element(size_t index) const {
  if (index >= array_size()) fail("has no element ", index);
  return {(*value_)[index], text(place_, "[", index, "]")};
}

size_t JsonPart::array_size() const {
  if (!value_->is_array()) fail("expected an array, found ", value_->type_name());
  return value_->size();
}

const std::string& JsonPart::as_string() const {
  if (!value_->is_string()) fail("expected a string, found ", value_->type_name());
  return value_->get_ref<const std::string&>();
}

bool JsonPart::as_flag() const {
  if (!value_->is_boolean()) fail("expected true or false, found ", value_->type_name());
  return value_->get<bool>();
}

int64_t JsonPart::as_integer() const {
  if (!value_->is_number_integer()) fail("expected an integer, found ", value_->dump());
  return value_->get<int64_t>();
}

bool JsonPart::flag(const std::string& name, bool fallback) const {
  const std::optional<JsonPart> member = find(name);
  return member ? member->as_flag() : fallback;
}

}  // namespace asterism::data
