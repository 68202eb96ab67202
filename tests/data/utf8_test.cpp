#include "asterism/data/utf8.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(Utf8, WellFormedTextOfEveryLengthPasses) {
  for (const char* text : {"", "a", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF", "a第🙂b"}) {
    EXPECT_FALSE(invalid_utf8_offset(text).has_value()) << text;
  }
}

TEST(Utf8, TheFirstBadByteIsFound) {
  // Stray continuation, overlong forms, surrogates, beyond the last code point, cut characters.
  for (const char* bad : {"\x80", "\xC0\xAF", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xE2\x82z", "\xC3"}) {
    EXPECT_EQ(invalid_utf8_offset(std::string("é") + bad), 2u) << bad;
  }
}

TEST(Utf8, PrefixIsCutBetweenCharactersAndShowsNoControls) {
  EXPECT_EQ(readable_prefix("第第第", 2), "第第...");
  EXPECT_EQ(readable_prefix("第第", 2), "第第");
  EXPECT_EQ(readable_prefix("a\n\xFF\x7F"
                            "b",
                            9),
            "a???b");
}

}  // namespace
}  // namespace asterism::data
