#pragma once

#include <string>

#include "asterism/data/json_value.h"

namespace asterism::data {

/// Why a value does not fit a JSON Schema, with the place in it ("arguments.unit is \"K\", not one of ..."), or "".
/// `place` names the value. Looked at: type, nullable, enum, const, required, properties, additionalProperties, items,
/// anyOf, oneOf, allOf. A key that `properties` does not name counts as a mistake unless additionalProperties allows it
/// in so many words: models are to learn the parameters that a tool declares. Anything else in a schema fits.
std::string schema_mismatch(const JsonValue& value, const JsonValue& schema, const std::string& place);

}  // namespace asterism::data
