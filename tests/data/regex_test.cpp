#include "asterism/data/regex.h"

#include <gtest/gtest.h>

#include <vector>

#include "asterism/data/utf8.h"
#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

std::vector<std::string> matches(const std::string& pattern, const std::string& subject) {
  const Regex regex = Regex::compile(pattern);
  RegexScratch scratch;
  std::vector<std::string> found;
  size_t at = 0;
  while (const auto match = regex.find(subject, at, scratch)) {
    found.push_back(subject.substr(match->begin, match->size()));
    at = match->end;
  }
  return found;
}

bool matches_character(const Regex& regex, char32_t character) {
  std::string text;
  append_utf8(text, character);
  RegexScratch scratch;
  return regex.find(text, 0, scratch).has_value();
}

using Strings = std::vector<std::string>;

TEST(Regex, TakesAlternativesFromTheLeft) {
  EXPECT_EQ(matches(R"(\p{N}{1,3}|\p{L}+)", "ab12345ß"), (Strings{"ab", "123", "45", "ß"}));
  EXPECT_EQ(matches(R"((?i:'s|'ll)|\S+?)", "'S'lL"), (Strings{"'S", "'lL"}));
  EXPECT_EQ(matches(R"(\s+(?!\S)|\s+)", "a   b  "), (Strings{"  ", " ", "  "}));
  EXPECT_EQ(matches(R"([^\r\n\p{L}]?\p{L}+)", "\na b-c"), (Strings{"a", " b", "-c"}));
}

TEST(Regex, WhiteSpaceIsTheUnicodeProperty) {
  const Regex space = Regex::compile(R"(\s)"), other = Regex::compile(R"(\S)"), in_class = Regex::compile(R"([\s])");
  for (const char32_t c :
       {0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}) {
    EXPECT_TRUE(matches_character(space, c) && matches_character(in_class, c)) << std::hex << static_cast<uint32_t>(c);
    EXPECT_FALSE(matches_character(other, c)) << std::hex << static_cast<uint32_t>(c);
  }
  for (const char32_t c : {0x8, 0x1C, 0x1F, 0x180E, 0x200B, 0xFEFF}) {
    EXPECT_FALSE(matches_character(space, c)) << std::hex << static_cast<uint32_t>(c);
    EXPECT_TRUE(matches_character(other, c)) << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Regex, KnowsTheCharactersOfUnicode16) {
  EXPECT_TRUE(matches_character(Regex::compile(R"(\p{L})"), 0x1C89));   // Cyrillic capital TJE, 16.0
  EXPECT_TRUE(matches_character(Regex::compile(R"(\p{L})"), 0x2EBF0));  // CJK extension I, 15.1
  EXPECT_TRUE(matches_character(Regex::compile(R"([\p{M}])"), 0x897));
  EXPECT_TRUE(matches_character(Regex::compile(R"(\p{N})"), 0x10D40));
  EXPECT_TRUE(matches_character(Regex::compile(R"(\p{P})"), 0x1B4E));
  EXPECT_TRUE(matches_character(Regex::compile(R"(\p{S})"), 0x31EF));
  EXPECT_FALSE(matches_character(Regex::compile(R"([^\p{L}])"), 0x1C89));
  EXPECT_FALSE(matches_character(Regex::compile(R"(\P{L})"), 0x1C89));
}

TEST(Regex, LiteralTakesNothingAsSyntax) {
  const Regex regex = Regex::literal("a.+[\\E中");
  RegexScratch scratch;
  EXPECT_EQ(regex.find("xa.+[\\E中", 0, scratch), (ByteRange{1, 10}));
  EXPECT_EQ(regex.find("aab+[\\E中", 0, scratch), std::nullopt);
}

TEST(Regex, SurvivesLongTexts) {
  const std::string spaces(200000, ' ');
  EXPECT_EQ(matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces + "x").size(), 2u);
  EXPECT_EQ(matches(R"((?:a|b)+)", std::string(200000, 'a')).size(), 1u);  // more than the stack of a JIT holds
}

TEST(Regex, RefusesWhatMeansSomethingElseElsewhere) {
  const std::vector<std::pair<std::string, std::string>> cases = {{R"(\w+)", "the escape \\w"},
                                                                  {R"(\bx)", "the escape \\b"},
                                                                  {R"(^x)", "an anchor"},
                                                                  {R"(x$)", "an anchor"},
                                                                  {R"(\p{Han}+)", "the property Han"},
                                                                  {R"(\pL)", "\\p without {name}"},
                                                                  {R"([a[b]])", "a class inside"},
                                                                  {R"([a&&b])", "an intersection"},
                                                                  {R"([a)", "without its closing"},
                                                                  {R"([\Sa])", "a negated set"},
                                                                  {R"(x{,3})", "a brace that is no"},
                                                                  {R"(x{2}?)", "a ? after {n}"},
                                                                  {R"(x{1,2}+)", "a + after"},
                                                                  {R"((?<n>x))", "this kind of group"},
                                                                  {R"((*FAIL)x)", "a verb"},
                                                                  {R"(x\)", "a backslash at the end"},
                                                                  {R"(\xE9)", "\\x80 and above"},
                                                                  {R"([]a])", "an unescaped ]"},
                                                                  {R"(x*)", "can match the empty text"},
                                                                  {R"((x)", "is not valid"}};
  for (const auto& [pattern, expected] : cases) {
    const std::string message = message_of([&] { Regex::compile(pattern); });
    EXPECT_NE(message.find(expected), std::string::npos) << pattern << ": " << message;
  }
}

}  // namespace
}  // namespace asterism::data
