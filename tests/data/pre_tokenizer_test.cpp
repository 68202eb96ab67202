#include "asterism/data/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

using nlohmann::json;

json byte_level(bool add_prefix_space = false, bool use_regex = false) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"use_regex", use_regex}};
}

json split_step(const std::string& pattern, const std::string& behaviour = "Isolated", bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", behaviour}, {"invert", invert}};
}

json sequence(const std::vector<json>& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The pieces of a text with a bar after each; "_" stands for a space that was put before.
std::string pieces(const json& spec, const std::string& text) {
  const PreTokenizer pre_tokenizer(JsonPart(spec, "pre_tokenizer"));
  std::string out;
  for (const Piece& piece : pre_tokenizer.split(text)) {
    out += (piece.space_before ? "_" : "") + text.substr(piece.range.begin, piece.range.size()) + "|";
  }
  return out;
}

TEST(PreTokenizer, BehavioursSayWhereMatchesGo) {
  const auto split = [](const std::string& behaviour, bool invert = false) {
    return pieces(sequence({split_step("-", behaviour, invert), byte_level()}), "-a--b-");
  };
  EXPECT_EQ(split("Isolated"), "-|a|-|-|b|-|");
  EXPECT_EQ(split("Removed"), "a|b|");
  EXPECT_EQ(split("MergedWithPrevious"), "-|a-|-|b-|");
  EXPECT_EQ(split("MergedWithNext"), "-a|-|-b|-|");
  EXPECT_EQ(split("Contiguous"), "-|a|--|b|-|");
  EXPECT_EQ(split("Removed", /*invert=*/true), "-|-|-|-|");
  EXPECT_EQ(split("MergedWithPrevious", /*invert=*/true), "-a|-|-b|-|");
}

TEST(PreTokenizer, EachStepSeesEachPieceAlone) {
  const json spec = sequence({split_step(R"(\p{N}{1,3})"), split_step(R"(\s+(?!\S)|\s+)"), byte_level()});
  EXPECT_EQ(pieces(spec, "  5"), "  |5|");  // the digit is out of sight for the look-ahead
  EXPECT_EQ(pieces(spec, "  x"), " | |x|");
  EXPECT_EQ(pieces(spec, "12345"), "123|45|");
  EXPECT_EQ(pieces(spec, ""), "");
}

TEST(PreTokenizer, StringPatternsAndDigitsAreSplitsToo) {
  const json literal = {{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "Isolated"}};
  EXPECT_EQ(pieces(sequence({literal, byte_level()}), "a.b"), "a|.|b|");
  const json digits = {{"type", "Digits"}, {"individual_digits", true}}, runs = {{"type", "Digits"}};
  EXPECT_EQ(pieces(sequence({digits, byte_level()}), "a12½"), "a|1|2|½|");
  EXPECT_EQ(pieces(sequence({runs, byte_level()}), "a12½b"), "a|12½|b|");
}

TEST(PreTokenizer, ByteLevelAloneSplitsWords) {
  EXPECT_EQ(pieces(byte_level(false, true), "it's  a 1.5 b"), "it|'s| | a| 1|.|5| b|");
}

TEST(PreTokenizer, PrefixSpaceGoesBeforePiecesThatHaveNone) {
  EXPECT_EQ(pieces(byte_level(true, true), "ab cd"), "_ab| cd|");
  EXPECT_EQ(pieces(byte_level(true, true), " ab"), " ab|");
  EXPECT_EQ(pieces(byte_level(true, true), "\nab"), "_|\n|ab|");
  EXPECT_EQ(pieces(sequence({split_step(","), byte_level(true)}), "a,b"), "_a|_,|_b|");
}

TEST(PreTokenizer, NamesWhatItCannotDo) {
  const auto message = [](const json& spec) {
    return message_of([&] { PreTokenizer(JsonPart(spec, "pre_tokenizer")); });
  };
  const json split = split_step("x");
  EXPECT_EQ(message({{"type", "Whitespace"}}),
            "pre_tokenizer: type \"Whitespace\" is not supported; known: Sequence, Split, Digits, ByteLevel");
  EXPECT_EQ(message(split), "pre_tokenizer: has no ByteLevel step; only byte-level tokenizers are supported");
  EXPECT_EQ(message(sequence({byte_level(), split})),
            "pre_tokenizer.pretokenizers[1]: a step after ByteLevel is not supported");
  EXPECT_EQ(message(sequence({split_step("x", "Joined"), byte_level()})),
            "pre_tokenizer.pretokenizers[0].behavior: \"Joined\" is not known; expected Isolated, Removed, "
            "MergedWithPrevious, MergedWithNext or Contiguous");
  EXPECT_EQ(message(sequence({split_step(R"(\w)"), byte_level()})),
            "pre_tokenizer.pretokenizers[0].pattern: split pattern \"\\w\", byte 0: the escape \\w is not supported");
  EXPECT_EQ(message({{"type", "Sequence"}}), "pre_tokenizer: member \"pretokenizers\" is missing");
}

}  // namespace
}  // namespace asterism::data
