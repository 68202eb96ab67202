#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "asterism/data/json_value.h"

namespace asterism::data {

/// Why a text is no JSON value, and at which byte.
struct JsonFault {
  enum class Kind {
    Syntax,
    LoneSurrogate,  // "\ud800" alone: JSON, and legal in Python, but not a character that UTF-8 can hold
    TooDeep,
    EqualKeys,  // of one object, when they are not allowed
  };
  Kind kind;
  size_t offset;
  std::string reason;
};

/// Levels of brackets that a value may have. No real one nests deeper, and values are copied and destroyed recursively.
inline constexpr int kMaxJsonDepth = 200;

/// What two equal keys of an object mean: the last value counts, in the first one's place, as in Python; or a fault.
enum class EqualKeys { LastCounts, AreFault };

/// Reads what Python's json.loads reads: RFC 8259, and NaN, Infinity, -Infinity. White space around the value is
/// allowed, a byte order mark is not; nor are control characters in strings, or whole numbers of more than 4,300
/// digits. A float out of range is infinite. `text` must be UTF-8. `value` is unspecified after a fault.
std::optional<JsonFault> parse_json(std::string_view text, JsonValue& value,
                                    EqualKeys equal_keys = EqualKeys::LastCounts);

/// Appends what Python's json.dumps(value, ensure_ascii=False) gives: ", " and ": " between parts, no newlines, only
/// quotes, backslashes and U+0000..001F escaped, floats as Python's repr writes them.
void write_json(const JsonValue& value, std::string& out);
std::string to_json(const JsonValue& value);

}  // namespace asterism::data
