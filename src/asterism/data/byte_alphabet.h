#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace asterism::data {

/// Byte-level vocabularies write each byte as one visible character: printable ASCII and printable Latin-1 stand for
/// themselves, the other 68 bytes in order become U+0100, U+0101, ... (a space is U+0120, "Ġ").

/// The character (UTF-8) that stands for a byte.
const std::string& byte_character(unsigned char byte);

/// The bytes that a text of such characters stands for; nothing when it contains any other character.
std::optional<std::string> bytes_of_characters(std::string_view text);

}  // namespace asterism::data
