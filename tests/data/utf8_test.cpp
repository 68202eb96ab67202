#include "asterism/data/utf8.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(Utf8, EveryCharacterIsReadBackAsWritten) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string bytes;
    append_utf8(bytes, c);
    const Utf8Sequence sequence = read_utf8(bytes, 0);
    ASSERT_TRUE(sequence.valid) << std::hex << static_cast<uint32_t>(c);
    ASSERT_EQ(sequence.value, c);
    ASSERT_EQ(sequence.length, bytes.size());
  }
}

TEST(Utf8, FindsTheFirstBadByteWhereverItStands) {
  EXPECT_EQ(find_invalid_utf8("plain text, 中文, \xF0\x9F\x98\x80"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("0123456789\xFF"), 10u);
  EXPECT_EQ(find_invalid_utf8("ab\xC0\x80"), 2u);                 // overlong
  EXPECT_EQ(find_invalid_utf8("ab\xED\xA0\x80"), 2u);             // surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);           // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("0123456\xE4\xB8"), 7u);            // cut off at the end
  EXPECT_EQ(find_invalid_utf8(std::string_view("\x80", 1)), 0u);  // continuation alone
}

TEST(Utf8, ReplacesMaximalPartsAsTheStandardShows) {
  // The example of Unicode table 3-8: three cut sequences and stray bytes.
  EXPECT_EQ(replace_invalid_utf8("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("中"), "中");
}

}  // namespace
}  // namespace asterism::data
