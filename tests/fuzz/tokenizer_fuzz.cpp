#include <gtest/gtest.h>

#include "asterism/data/tokenizer.h"
#include "asterism/data/utf8.h"
#include "tests/data/tokenizer_files.h"
#include "tests/fuzz/fuzz.h"

namespace asterism::fuzz {
namespace {

using namespace asterism::data;

/// The published tokenizer where it is present, else a small one with tokens of several letters and with added tokens.
Tokenizer fuzzed_tokenizer() {
  if (const auto folder = v4_tokenizer_folder()) return Tokenizer::load(*folder);
  nlohmann::json file = small_tokenizer({{"a", "b"}, {"ab", "ab"}, {"<", "/"}});
  file["added_tokens"] = {added_token(300, "<think>"), added_token(301, "</think>")};
  return Tokenizer::parse(file.dump(), "small");
}

void check_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const Encoding encoding = tokenizer.encode_with_ranges(text);
  ASSERT_EQ(encoding.ids.size(), encoding.ranges.size());
  size_t at = 0;
  for (const ByteRange& range : encoding.ranges) {
    ASSERT_EQ(range.begin, at) << text;
    ASSERT_LT(range.begin, range.end) << text;
    at = range.end;
  }
  ASSERT_EQ(at, text.size()) << text;
  ASSERT_EQ(tokenizer.decode_bytes(encoding.ids), text);
}

std::string random_characters(Dice& dice) {
  std::string text;
  for (uint64_t i = dice.below(30); i > 0; --i) {
    const uint64_t value = dice.below(dice.chance(0.5) ? 0x300 : 0x110000);
    if (value < 0xD800 || value > 0xDFFF) append_utf8(text, static_cast<char32_t>(value));
  }
  return text;
}

TEST(Fuzz, Tokenizer) {
  const Tokenizer tokenizer = fuzzed_tokenizer();
  const std::vector<std::string> others = {"  \n\n \t x", "aaaaaaaaaaaaaaaaaaaa", "12345678", "你好，世界"};
  for_each_input("tokenizer", 10000, [&](Dice& dice) {
    const std::string source = dice.chance(0.5) ? test::hostile_text(dice, 20) : random_characters(dice);
    const std::string text = mutated(dice, source, others);
    check_round_trip(tokenizer, replace_invalid_utf8(text));
    if (find_invalid_utf8(text)) {
      ASSERT_THROW(tokenizer.encode(text), InputError) << text;
    }
    std::vector<int64_t> ids;
    for (uint64_t i = dice.below(8); i > 0; --i) ids.push_back(static_cast<int64_t>(dice.below(140000)) - 10);
    ASSERT_FALSE(find_invalid_utf8(tokenizer.decode(ids)));
  });
}

TEST(Fuzz, TokenizingAMegabyteTakesLinearTime) {
  const Tokenizer tokenizer = fuzzed_tokenizer();
  for (const std::string unit : {"a", "=", " ", "<think", "1", "\u0301"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    check_round_trip(tokenizer, text);
  }
}

}  // namespace
}  // namespace asterism::fuzz
