#include "asterism/data/deepseek_split.h"

#include <gtest/gtest.h>

#include <random>

#include "asterism/data/pre_tokenizer.h"
#include "asterism/data/utf8.h"
#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

// The three patterns as steps; in a group each, so that they are not recognised and PCRE2 matches them.
PreTokenizer split_by_regexes() {
  nlohmann::json steps = nlohmann::json::array();
  for (const std::string_view pattern : kDeepseekPatterns) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", "(?:" + std::string(pattern) + ")"}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  const nlohmann::json spec = {{"type", "Sequence"}, {"pretokenizers", steps}};
  return PreTokenizer(JsonPart(spec, "pre_tokenizer"));
}

std::string with_bars(const std::string& text, const std::vector<size_t>& ends) {
  std::string out;
  size_t begin = 0;
  for (const size_t end : ends) {
    out += text.substr(begin, end - begin) + "|";
    begin = end;
  }
  return out;
}

std::vector<size_t> scanned(const std::string& text) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size(); ends.push_back(at)) {
    const size_t end = deepseek_piece_end(text, at);
    if (end <= at || end > text.size()) ADD_FAILURE() << "piece [" << at << ", " << end << ") of " << text;
    if (end <= at) break;
    at = end;
  }
  return ends;
}

std::vector<size_t> matched(const PreTokenizer& regexes, const std::string& text) {
  std::vector<size_t> ends;
  for (const Piece& piece : regexes.split(text)) ends.push_back(piece.range.end);
  return ends;
}

// Characters that the patterns tell apart, some of every kind.
char32_t notable_character(std::mt19937& random) {
  static const std::u32string notable =
      U" \t\n\r\v\u0085\u00A0\u2028\u3000"                // white space and line breaks
      U"aZé\u4E00\u9FA5\u9FA6\u3042\u30A2\u3005\u0E01"    // letters inside and outside the second pattern
      U"\u0301\u3099\u093E"                               // marks
      U"09½Ⅻ٣"                                            // numbers
      U"!'_~,.<$+^。・゠゛€😀"                             // punctuation and symbols
      U"\x01\x1C\x7F\u200B\u200D\u3040\U000E0001\uE000";  // none of these
  return notable[random() % notable.size()];
}

char32_t any_character(std::mt19937& random) {
  const char32_t c = random() % (random() % 2 == 0 ? 0x3100 : 0x110000);
  return c >= 0xD800 && c <= 0xDFFF ? U'x' : c;
}

std::string random_text(std::mt19937& random) {
  std::string text;
  const unsigned rare = random() % 3 == 0 ? 2 : 50;  // every second character is arbitrary, or few are
  char32_t previous = U' ';
  for (size_t count = 1 + random() % 10; count > 0; --count) {
    char32_t c = random() % rare == 0 ? any_character(random) : notable_character(random);
    if (random() % 4 == 0) c = previous;
    append_utf8(text, c);
    previous = c;
  }
  return text;
}

TEST(DeepseekSplit, EqualsTheRegexesOnRandomStrings) {
  const PreTokenizer regexes = split_by_regexes();
  std::mt19937 random(29);
  const int count = std::getenv("ASTERISM_LONG") ? 5000000 : 250000;
  for (int i = 0; i < count; ++i) {
    const std::string text = random_text(random);
    const std::vector<size_t> expected = matched(regexes, text);
    ASSERT_EQ(scanned(text), expected) << with_bars(text, scanned(text)) << " instead of " << with_bars(text, expected);
  }
}

TEST(DeepseekSplit, EqualsTheRegexesBesideEveryCharacter) {
  const PreTokenizer regexes = split_by_regexes();
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    for (const char32_t neighbour : {U'a', U' ', U'の'}) {
      append_utf8(text, c);
      append_utf8(text, neighbour);
    }
    if (text.size() < 4096) continue;
    ASSERT_EQ(scanned(text), matched(regexes, text)) << "up to U+" << std::hex << static_cast<uint32_t>(c);
    text.clear();
  }
}

TEST(DeepseekSplit, LooksAheadInsideAPartOnly) {
  const auto pieces = [](const std::string& text) { return with_bars(text, scanned(text)); };
  EXPECT_EQ(pieces("  5"), "  |5|");
  EXPECT_EQ(pieces("  x"), " | x|");
  EXPECT_EQ(pieces("  中"), "  |中|");
  EXPECT_EQ(pieces("12345½"), "123|45½|");
  EXPECT_EQ(pieces("don't #include<a>\n\n x"), "don|'t| #|include|<a|>\n\n| x|");
  EXPECT_EQ(pieces("a \n \n  b"), "a| \n \n| | b|");
}

}  // namespace
}  // namespace asterism::data
