#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace asterism::data {

/// The sequence that starts at a byte of a text.
struct Utf8Sequence {
  size_t length;   // bytes, >= 1; when not valid: the longest part that could still have become a character
  bool valid;      // well-formed (Unicode table 3-7: no overlong forms, surrogates or values above U+10FFFF)
  char32_t value;  // the character; U+FFFD when not valid
};

/// Reads the sequence at `offset` < bytes.size(); never looks past the end.
Utf8Sequence read_utf8(std::string_view bytes, size_t offset);

/// Offset of the first byte that belongs to no well-formed sequence, or nothing when all of `bytes` is UTF-8.
std::optional<size_t> find_invalid_utf8(std::string_view bytes);

/// `bytes` with every maximal ill-formed part replaced by U+FFFD (Unicode section 3.9, "substitution of maximal
/// subparts": the rule of Rust's from_utf8_lossy and of web browsers).
std::string replace_invalid_utf8(std::string_view bytes);

/// Appends the UTF-8 form of a character (at most U+10FFFF, no surrogate).
void append_utf8(std::string& out, char32_t value);

}  // namespace asterism::data
