#include "asterism/data/excerpt.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(Excerpt, IsCutBetweenCharacters) {
  EXPECT_EQ(readable_prefix("第第第", 2), "第第...");
  EXPECT_EQ(readable_prefix("第第", 2), "第第");
  EXPECT_EQ(readable_prefix("", 2), "");
}

TEST(Excerpt, ShowsNoControlsAndNoBrokenBytes) {
  EXPECT_EQ(readable_prefix("a\n\xFF\x7F\xE2\x82z", 9), "a????z");
  EXPECT_EQ(readable_prefix(std::string("a\0b", 3), 9), "a?b");
}

}  // namespace
}  // namespace asterism::data
