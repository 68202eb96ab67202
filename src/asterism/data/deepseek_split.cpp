#include "asterism/data/deepseek_split.h"

#include <cstdint>

#include "asterism/data/unicode_class.h"

// How three steps become one scan. The first two steps cut the text into digits, runs of Han and kana (a block of
// characters, some of them marks and symbols), and the rest; which of the three a character belongs to does not depend
// on its neighbours. So a part ends where the next character is of another kind, and the third pattern, which sees
// every part by itself, is matched from character to character with that as the end of its input. It never matches in
// digits.

namespace asterism::data {

namespace {

constexpr uint8_t kLineBreak = 16;  // CR, LF
constexpr uint8_t kHanOrKana = 32;  // the second pattern
constexpr uint8_t kPart = kNumber | kHanOrKana;

struct Character {
  uint8_t bits = 0;
  uint8_t length = 0;  // bytes; 0 at the end of the text
};

constexpr bool is_han_or_kana(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF);
}

constexpr std::array<uint8_t, 128> ascii_bits() {
  std::array<uint8_t, 128> bits{};
  for (char32_t c = 0; c < 128; ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter) {
      bits[c] = kLetterOrMark;
    } else if (c >= '0' && c <= '9') {
      bits[c] = kNumber;
    } else if (c > ' ' && c < 127) {
      bits[c] = kPunctuationOrSymbol;
    } else if (is_white_space(c)) {
      bits[c] = kWhiteSpace | (c == '\r' || c == '\n' ? kLineBreak : 0);
    }
  }
  return bits;
}

constexpr std::array<uint8_t, 128> kAsciiBits = ascii_bits();

bool is_ascii_letter(unsigned char c) {
  return static_cast<unsigned char>((c | 0x20) - 'a') < 26;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text)
      : bytes_(reinterpret_cast<const unsigned char*>(text.data())), size_(text.size()) {}

  size_t piece_end(size_t begin) {
    const Character first = at(begin);
    if (first.bits & kNumber) return end_of_digits(begin);
    part_ = first.bits & kPart;
    const size_t second = begin + first.length;
    if (first.bits & kLetterOrMark) return end_of(kLetterOrMark, second);
    if (first.bits & kPunctuationOrSymbol) {
      if (bytes_[begin] < 0x80 && second < size_ && is_ascii_letter(bytes_[second]))
        return end_of_ascii_letters(second);
      return end_of(kLineBreak, end_of(kPunctuationOrSymbol, second));
    }
    const Character next = in_part(second);
    if (!(first.bits & kLineBreak) && (next.bits & kLetterOrMark)) return end_of(kLetterOrMark, second + next.length);
    if (bytes_[begin] == ' ' && (next.bits & kPunctuationOrSymbol)) {
      return end_of(kLineBreak, end_of(kPunctuationOrSymbol, second + next.length));
    }
    return first.bits & kWhiteSpace ? end_of_white_space(begin) : end_of_unmatched(second);
  }

 private:
  Character at(size_t position) const {
    if (position >= size_) return {};
    const unsigned char* p = bytes_ + position;
    if (p[0] < 0x80) return {kAsciiBits[p[0]], 1};
    if (p[0] < 0xE0) return classify((p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu), 2);
    if (p[0] < 0xF0) return classify((p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), 3);
    return classify((p[0] & 0x07u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu), 4);
  }

  Character classify(char32_t c, uint8_t length) const {
    const uint8_t block = is_han_or_kana(c) ? kHanOrKana : 0;
    return {static_cast<uint8_t>(classes_[c] | block), length};
  }

  /// The character if it belongs to the part that is being scanned; otherwise none, as at the end of the text.
  Character in_part(size_t position) const {
    const Character found = at(position);
    return (found.bits & kPart) == part_ ? found : Character{};
  }

  /// End of the run of characters with this bit.
  size_t end_of(uint8_t bit, size_t position) const {
    while (true) {
      const Character found = in_part(position);
      if (!(found.bits & bit)) return position;
      position += found.length;
    }
  }

  size_t end_of_ascii_letters(size_t position) const {
    while (position < size_ && is_ascii_letter(bytes_[position])) ++position;
    return position;
  }

  size_t end_of_digits(size_t position) const {
    for (int count = 0; count < 3; ++count) {
      const Character found = at(position);
      if (!(found.bits & kNumber)) break;
      position += found.length;
    }
    return position;
  }

  size_t end_of_white_space(size_t begin) const {
    size_t end = begin, last = begin, after_line_break = begin;
    while (true) {
      const Character found = in_part(end);
      if (!(found.bits & kWhiteSpace)) {
        if (after_line_break != begin) return after_line_break;
        // Where the part goes on, the last character belongs to what follows, unless it is the only one.
        return found.length == 0 || last == begin ? end : last;
      }
      last = end;
      end += found.length;
      if (found.bits & kLineBreak) after_line_break = end;
    }
  }

  /// From after a character that no pattern takes to where the next match begins.
  size_t end_of_unmatched(size_t position) const {
    while (true) {
      const Character found = in_part(position);
      if (found.length == 0 || found.bits & (kLetterOrMark | kPunctuationOrSymbol | kWhiteSpace)) return position;
      const size_t next = position + found.length;
      if (in_part(next).bits & kLetterOrMark) return position;  // takes this character along
      position = next;
    }
  }

  const unsigned char* bytes_;
  size_t size_;
  const uint8_t* classes_ = character_classes();
  uint8_t part_ = 0;  // the kind of the part that the piece lies in
};

}  // namespace

size_t deepseek_piece_end(std::string_view text, size_t begin) {
  return Scanner(text).piece_end(begin);
}

}  // namespace asterism::data
