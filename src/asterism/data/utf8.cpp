#include "asterism/data/utf8.h"

#include <cstdint>
#include <cstring>

namespace asterism::data {

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// What may follow a lead byte: the number of further bytes, and the range of the first of them.
struct Lead {
  size_t following;
  unsigned char low, high;
};

std::optional<Lead> classify(unsigned char byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return Lead{1, 0x80, 0xBF};
  if (byte == 0xE0) return Lead{2, 0xA0, 0xBF};
  if (byte == 0xED) return Lead{2, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return Lead{2, 0x80, 0xBF};
  if (byte == 0xF0) return Lead{3, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return Lead{3, 0x80, 0xBF};
  if (byte == 0xF4) return Lead{3, 0x80, 0x8F};
  return std::nullopt;
}

// Whether the bytes from `offset` on are a character of three bytes whose first does not restrict the second: most
// characters beyond ASCII are.
bool is_plain_triple(std::string_view bytes, size_t offset) {
  if (offset + 3 > bytes.size()) return false;
  const auto first = static_cast<unsigned char>(bytes[offset]);
  const auto second = static_cast<unsigned char>(bytes[offset + 1]),
             third = static_cast<unsigned char>(bytes[offset + 2]);
  return (first & 0xF0) == 0xE0 && first != 0xE0 && first != 0xED && (second & 0xC0) == 0x80 && (third & 0xC0) == 0x80;
}

size_t skip_ascii(std::string_view bytes, size_t offset) {
  constexpr uint64_t kHighBits = 0x8080808080808080ull;
  while (offset + 8 <= bytes.size()) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + offset, 8);
    if ((word & kHighBits) != 0) break;
    offset += 8;
  }
  return offset;
}

}  // namespace

Utf8Sequence read_utf8(std::string_view bytes, size_t offset) {
  const auto first = static_cast<unsigned char>(bytes[offset]);
  if (first < 0x80) return {1, true, first};
  const std::optional<Lead> lead = classify(first);
  if (!lead) return {1, false, kReplacement};

  char32_t value = first & (0x3Fu >> lead->following);
  unsigned char low = lead->low, high = lead->high;
  for (size_t i = 1; i <= lead->following; ++i) {
    if (offset + i >= bytes.size()) return {i, false, kReplacement};
    const auto next = static_cast<unsigned char>(bytes[offset + i]);
    if (next < low || next > high) return {i, false, kReplacement};
    value = (value << 6) | (next & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {lead->following + 1, true, value};
}

std::optional<size_t> find_invalid_utf8(std::string_view bytes) {
  size_t offset = 0;
  while ((offset = skip_ascii(bytes, offset)) < bytes.size()) {
    const Utf8Sequence sequence = read_utf8(bytes, offset);
    if (!sequence.valid) return offset;
    offset += sequence.length;
    while (is_plain_triple(bytes, offset)) offset += 3;
  }
  return std::nullopt;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (size_t offset = 0; offset < bytes.size();) {
    const Utf8Sequence sequence = read_utf8(bytes, offset);
    if (sequence.valid) {
      out.append(bytes, offset, sequence.length);
    } else {
      append_utf8(out, kReplacement);
    }
    offset += sequence.length;
  }
  return out;
}

void append_utf8(std::string& out, char32_t value) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) return put(value);
  if (value < 0x800) {
    put(0xC0 | (value >> 6));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
  }
  put(0x80 | (value & 0x3F));
}

}  // namespace asterism::data
