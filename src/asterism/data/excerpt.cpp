#include "asterism/data/excerpt.h"

#include "asterism/data/utf8.h"

namespace asterism::data {

std::string readable_prefix(std::string_view text, size_t max_characters) {
  std::string out;
  size_t at = 0;
  for (size_t count = 0; at < text.size() && count < max_characters; ++count) {
    const Utf8Sequence character = read_utf8(text, at);
    const bool control = character.value < 0x20 || character.value == 0x7F;
    if (character.valid && !control) {
      out.append(text.substr(at, character.length));
    } else {
      out += '?';
    }
    at += character.length;
  }
  if (at < text.size()) out += "...";
  return out;
}

}  // namespace asterism::data
