#include "asterism/data/utf8.h"

#include <cstdint>

namespace asterism::data {
namespace {

/// Length of the well-formed character at the start of `text` (not empty), 0 if there is none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xC2 && first <= 0xDF ? 2 : (first & 0xF0) == 0xE0 ? 3 : first >= 0xF0 ? 4 : 0;
  if (length == 0 || first > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // The second byte decides what is overlong, a surrogate or beyond U+10FFFF.
  const uint8_t second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return length;
}

}  // namespace

std::optional<size_t> invalid_utf8_offset(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = character_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string readable_prefix(std::string_view text, size_t max_characters) {
  std::string out;
  size_t at = 0;
  for (size_t count = 0; at < text.size() && count < max_characters; ++count) {
    const size_t length = character_length(text.substr(at));
    const bool control = length == 1 && (static_cast<uint8_t>(text[at]) < 0x20 || text[at] == 0x7F);
    if (length == 0 || control) {
      out += '?';
      ++at;
    } else {
      out.append(text.substr(at, length));
      at += length;
    }
  }
  if (at < text.size()) out += "...";
  return out;
}

}  // namespace asterism::data
