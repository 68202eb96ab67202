#include "asterism/data/unicode_class.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "asterism/data/regex.h"
#include "asterism/data/utf8.h"

namespace asterism::data {
namespace {

constexpr char32_t kCodePoints = 0x110000;

bool is_surrogate(char32_t c) {
  return c >= 0xD800 && c <= 0xDFFF;
}

// All characters one after the other, and the first byte of each; the last entry is the size.
struct AllCharacters {
  std::string text;
  std::vector<size_t> begin;

  AllCharacters() {
    for (char32_t c = 0; c < kCodePoints; ++c) {
      begin.push_back(text.size());
      if (!is_surrogate(c)) append_utf8(text, c);
    }
    begin.push_back(text.size());
  }
};

TEST(UnicodeClass, IsWhatTheRegexesSay) {
  const AllCharacters all;
  const std::vector<std::pair<CharacterClass, const char*>> groups = {{kLetterOrMark, R"([\p{L}\p{M}]+)"},
                                                                      {kNumber, R"(\p{N}+)"},
                                                                      {kPunctuationOrSymbol, R"([\p{P}\p{S}]+)"},
                                                                      {kWhiteSpace, R"(\s+)"}};
  for (const auto& [group, pattern] : groups) {
    const Regex regex = Regex::compile(pattern);
    RegexScratch scratch;
    ByteRange match;
    for (char32_t c = 0; c < kCodePoints; ++c) {
      if (is_surrogate(c)) continue;
      const size_t at = all.begin[c];
      if (at >= match.end) match = regex.find(all.text, at, scratch).value_or(ByteRange{~size_t{0}, ~size_t{0}});
      const bool in_match = match.begin <= at && at < match.end;
      ASSERT_EQ((character_classes()[c] & group) != 0, in_match) << pattern << " U+" << std::hex << uint32_t{c};
    }
  }
}

TEST(UnicodeClass, SurrogatesHaveNone) {
  for (char32_t c = 0xD800; c <= 0xDFFF; ++c) ASSERT_EQ(character_classes()[c], 0);
}

}  // namespace
}  // namespace asterism::data
