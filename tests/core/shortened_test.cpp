#include "asterism/core/shortened.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"

namespace asterism {
namespace {

TEST(Shortened, LongFindingsAreShownByTheirBeginning) {
  EXPECT_EQ(shortened("found"), "found");
  const std::string longest(300, 'x');
  EXPECT_EQ(shortened(longest), longest);
  const std::string longer(301, 'x');
  EXPECT_EQ(shortened(longer), text(longest, "... (301 bytes)"));
}

TEST(Shortened, NoCharacterIsCut) {
  const std::string before(299, 'x'), after(1000, 'y');
  EXPECT_EQ(shortened(text(before, "é", after)), text(before, "... (1301 bytes)"));
}

}  // namespace
}  // namespace asterism
