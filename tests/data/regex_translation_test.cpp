#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "asterism/data/regex.h"

namespace asterism::data {
namespace {

TEST(TranslatePattern, RewritesWhatPcre2WouldReadDifferently) {
  // \s of PCRE2 has U+180E and lacks nothing else: the property is meant.
  EXPECT_NE(translate_pattern(R"(\s+)"), R"(\s+)");
  EXPECT_NE(translate_pattern(R"(\p{L})"), R"(\p{L})");
  EXPECT_EQ(translate_pattern("a|b{1,3}"), "a|b{1,3}");
}

TEST(TranslatePattern, NamesTheConstructThatItDoesNotKnow) {
  for (const auto& [pattern, construct] : {std::pair{R"(\w+)", "\\w"}, {R"(\bx)", "\\b"}, {R"([a&&b])", "&&"}}) {
    try {
      translate_pattern(pattern);
      ADD_FAILURE() << pattern;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(construct), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace asterism::data
