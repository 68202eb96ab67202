#include "asterism/data/byte_alphabet.h"

#include <array>

#include "asterism/data/utf8.h"

namespace asterism::data {

namespace {

constexpr char32_t kFirstSubstitute = 0x100;
constexpr int kSubstitutes = 68;

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, kFirstSubstitute + kSubstitutes> bytes;  // by code point; -1: stands for no byte
};

bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

const Alphabet& alphabet() {
  static const Alphabet made = [] {
    Alphabet result;
    result.bytes.fill(-1);
    char32_t substitute = kFirstSubstitute;
    for (int byte = 0; byte < 256; ++byte) {
      const char32_t character = stands_for_itself(byte) ? static_cast<char32_t>(byte) : substitute++;
      append_utf8(result.characters[byte], character);
      result.bytes[character] = byte;
    }
    return result;
  }();
  return made;
}

}  // namespace

const std::string& byte_character(unsigned char byte) {
  return alphabet().characters[byte];
}

std::optional<std::string> bytes_of_characters(std::string_view text) {
  const auto& bytes = alphabet().bytes;
  std::string out;
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Sequence sequence = read_utf8(text, offset);
    if (!sequence.valid || sequence.value >= bytes.size() || bytes[sequence.value] < 0) return std::nullopt;
    out.push_back(static_cast<char>(bytes[sequence.value]));
    offset += sequence.length;
  }
  return out;
}

}  // namespace asterism::data
