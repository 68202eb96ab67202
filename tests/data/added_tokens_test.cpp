#include "asterism/data/added_tokens.h"

#include <gtest/gtest.h>

#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

// The stretches of a text, tokens in brackets.
std::string marked(const std::vector<nlohmann::json>& tokens, const std::string& text,
                   const std::vector<ByteRange>& as_text = {}) {
  const nlohmann::json list = tokens;
  const AddedTokens added(JsonPart(list, "added_tokens"));
  std::string out;
  size_t end = 0;
  for (const Stretch& stretch : added.split(text, as_text)) {
    EXPECT_EQ(stretch.range.begin, end);
    EXPECT_LT(stretch.range.begin, stretch.range.end);
    end = stretch.range.end;
    const std::string part = text.substr(stretch.range.begin, stretch.range.size());
    out += stretch.token == nullptr ? part + "|" : "[" + part + "]|";
  }
  EXPECT_EQ(end, text.size());
  return out;
}

TEST(AddedTokens, LeftmostWinsAndThenLongest) {
  const std::vector<nlohmann::json> tokens = {added_token(0, "<a"), added_token(1, "<a><b>"), added_token(2, "a>")};
  EXPECT_EQ(marked(tokens, "x<a><b>y"), "x|[<a><b>]|y|");
  EXPECT_EQ(marked(tokens, "<a><b"), "[<a]|><b|");
  EXPECT_EQ(marked(tokens, "a><a"), "[a>]|[<a]|");
  EXPECT_EQ(marked(tokens, ""), "");
}

TEST(AddedTokens, NormalizedTokensComeSecond) {
  // The first pass takes "bc" although "ab" starts further left.
  EXPECT_EQ(marked({added_token(0, "ab", {"normalized"}), added_token(1, "bc")}, "abcab"), "a|[bc]|[ab]|");
}

TEST(AddedTokens, StripFlagsTakeWhiteSpaceAlong) {
  EXPECT_EQ(marked({added_token(0, "<m>", {"lstrip"})}, "a \n\u3000<m> b"), "a|[ \n\u3000<m>]| b|");
  EXPECT_EQ(marked({added_token(0, "<m>", {"rstrip"})}, "a <m>\t\u00A0b"), "a |[<m>\t\u00A0]|b|");
  EXPECT_EQ(marked({added_token(0, "<m>", {"lstrip", "rstrip"})}, "<m> <m> "), "[<m> ]|[<m> ]|");
  EXPECT_EQ(marked({added_token(0, "<m>", {"lstrip"})}, "a\u200B<m>"), "a\u200B|[<m>]|");
}

TEST(AddedTokens, WhiteSpaceThatTwoTokensClaimBelongsToTheFirst) {
  const nlohmann::json strips = added_token(0, "<m>", {"rstrip"});
  EXPECT_EQ(marked({strips, added_token(1, " x")}, "<m>  x"), "[<m>  ]|[x]|");
  EXPECT_EQ(marked({strips, added_token(1, " x", {"lstrip"})}, "<m>  x"), "[<m>  ]|[x]|");
  EXPECT_EQ(marked({strips, added_token(1, "\n\n", {"rstrip"})}, "<m>\n\n\n\na\n\n b"), "[<m>\n\n\n\n]|a|[\n\n ]|b|");
}

TEST(AddedTokens, WhiteSpaceTakenAsTextStaysThere) {
  EXPECT_EQ(marked({added_token(0, "<m>", {"rstrip"})}, "<m>   a", {{4, 7}}), "[<m> ]|  a|");
  EXPECT_EQ(marked({added_token(0, "<m>", {"lstrip"})}, "a   <m>", {{0, 3}}), "a  |[ <m>]|");
}

TEST(AddedTokens, SingleWordNeedsNoWordCharacterBeside) {
  const std::vector<nlohmann::json> tokens = {added_token(0, "ing", {"single_word"})};
  EXPECT_EQ(marked(tokens, "ing, -ing ing."), "[ing]|, -|[ing]| |[ing]|.|");
  EXPECT_EQ(marked(tokens, "king ings _ing ing1 \u4E2Ding ing\u0301"), "king ings _ing ing1 \u4E2Ding ing\u0301|");
  // A rejected match is passed over as a whole: the shorter token inside it is not found.
  EXPECT_EQ(marked({added_token(0, "ing", {"single_word"}), added_token(1, "in")}, "kings in"), "kings |[in]|");
}

TEST(AddedTokens, NoTokenTouchesARangeTakenAsText) {
  const std::vector<nlohmann::json> tokens = {added_token(0, "<m>"), added_token(1, "<n>", {"normalized"})};
  EXPECT_EQ(marked(tokens, "<m><m><n><m>", {{3, 9}}), "[<m>]|<m><n>|[<m>]|");
  EXPECT_EQ(marked(tokens, "<m><m>", {{2, 3}}), "<m>|[<m>]|");
  EXPECT_EQ(marked(tokens, "<n><m><n>", {{0, 3}, {6, 9}}), "<n>|[<m>]|<n>|");
  EXPECT_EQ(marked(tokens, "<m>", {{0, 3}}), "<m>|");
}

TEST(AddedTokens, CompletesOnNestedBeginnings) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "<｜";
  text += "User｜>";
  const nlohmann::json list = nlohmann::json::array({added_token(0, "<｜User｜>")});
  const AddedTokens added(JsonPart(list, "added_tokens"));
  const auto stretches = added.split(text, {});
  ASSERT_EQ(stretches.size(), 2u);
  EXPECT_EQ(stretches[1].range.size(), std::string("<｜User｜>").size());
}

TEST(AddedTokens, NamesTheDamageInAList) {
  const auto message = [](const nlohmann::json& list) {
    return message_of([&] { AddedTokens(JsonPart(list, "added_tokens")); });
  };
  EXPECT_EQ(message({added_token(5, "a"), added_token(5, "b")}),
            "added_tokens[1]: id 5 occurs twice among the added tokens");
  EXPECT_EQ(message({added_token(5, "a"), added_token(6, "a")}),
            "added_tokens[1]: content \"a\" occurs twice among the added tokens");
  EXPECT_EQ(message(nlohmann::json::array({added_token(5, "")})), "added_tokens[0]: content is empty");
  EXPECT_EQ(message(nlohmann::json::array({added_token(-5, "a")})), "added_tokens[0]: id -5 is negative");
  EXPECT_EQ(message(nlohmann::json::array({{{"id", 1}}})), "added_tokens[0]: member \"content\" is missing");
  EXPECT_EQ(message("x"), "added_tokens: expected an array, found string");
}

}  // namespace
}  // namespace asterism::data
