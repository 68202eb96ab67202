#include "asterism/data/unicode_class.h"

#include <algorithm>
#include <span>
#include <vector>

#include "asterism/data/unicode_class_ranges.h"

namespace asterism::data {

namespace {

constexpr char32_t kCodePoints = 0x110000;
constexpr char32_t kLastWhiteSpace = 0x3000;

void mark(std::span<const CharacterRange> ranges, CharacterClass group, std::vector<uint8_t>& classes) {
  for (const CharacterRange& range : ranges) {
    std::fill(classes.begin() + range.first, classes.begin() + range.last + 1, static_cast<uint8_t>(group));
  }
}

}  // namespace

const uint8_t* character_classes() {
  static const std::vector<uint8_t> made = [] {
    std::vector<uint8_t> classes(kCodePoints, 0);
    mark(kLettersAndMarks, kLetterOrMark, classes);
    mark(kNumbers, kNumber, classes);
    mark(kPunctuationAndSymbols, kPunctuationOrSymbol, classes);
    for (char32_t c = 0; c <= kLastWhiteSpace; ++c) {
      if (is_white_space(c)) classes[c] |= kWhiteSpace;
    }
    return classes;
  }();
  return made.data();
}

}  // namespace asterism::data
