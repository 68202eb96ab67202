#include "asterism/data/unicode_additions.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(UnicodeAdditions, ExistForTheGroupsThatThePatternsUse) {
  for (const char group : {'L', 'M', 'N', 'P', 'S'}) EXPECT_FALSE(added_after_unicode_14(group).empty()) << group;
  EXPECT_TRUE(added_after_unicode_14('Z').empty());
  EXPECT_TRUE(added_after_unicode_14('C').empty());
}

}  // namespace
}  // namespace asterism::data
