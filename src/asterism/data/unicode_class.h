#pragma once

#include <cstdint>

namespace asterism::data {

/// What split patterns ask of a character: the group of its general category in Unicode 16.0 and White_Space. At most
/// one of the first three bits is set; a character of none of the four is 0 (control, format, unassigned, ...).
enum CharacterClass : uint8_t {
  kLetterOrMark = 1,         // L, M
  kNumber = 2,               // N
  kPunctuationOrSymbol = 4,  // P, S
  kWhiteSpace = 8,           // the property White_Space
};

/// First and last code point.
struct CharacterRange {
  char32_t first, last;
};

/// The classes of all 0x110000 code points, made on the first call.
const uint8_t* character_classes();

constexpr bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace asterism::data
