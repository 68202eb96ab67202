#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace asterism::data {

/// Offset of the first byte that is not part of well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing
/// above U+10FFFF), or nothing when all of `text` is well-formed.
std::optional<size_t> invalid_utf8_offset(std::string_view text);

/// The first `max_characters` characters of `text` on one line for a message: control characters and bytes that are not
/// UTF-8 are shown as '?', a cut is shown as "...".
std::string readable_prefix(std::string_view text, size_t max_characters);

}  // namespace asterism::data
