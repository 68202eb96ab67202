#include "asterism/core/error.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <vector>

namespace asterism {
namespace {

TEST(Error, ExceptionsCarryTheirPartsAsText) {
  try {
    input_error("row ", 3, ": expected ", 1.5);
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "row 3: expected 1.5");
  }
  EXPECT_THROW(input_error("x"), InputError);
  EXPECT_THROW(run_error("x"), RunError);
}

TEST(Error, UserMessageOfATorchErrorHasNoStackTrace) {
  try {
    TORCH_CHECK(false, "[op] rule, got ", 7);
  } catch (const std::exception& error) {
    EXPECT_EQ(user_message(error), "[op] rule, got 7");
    return;
  }
  FAIL() << "TORCH_CHECK did not throw";
}

TEST(Error, UserMessageOfOtherErrorsIsTheirText) {
  EXPECT_EQ(user_message(RunError("disk full")), "disk full");
}

TEST(EditDistance, CountsInsertionsDeletionsAndSubstitutions) {
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("abc", ""), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("batch", "bacth"), 2U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(NearestName, FindsATypoAndRefusesTheUnrelated) {
  const std::vector<std::string> known = {"steps", "batch", "micro_batch"};
  EXPECT_EQ(nearest_name("bacth", known), "batch");
  EXPECT_EQ(nearest_name("micro-batch", known), "micro_batch");
  EXPECT_EQ(nearest_name("qqqqqqqq", known), "");
  EXPECT_EQ(nearest_name("x", std::vector<std::string>{}), "");
  const std::string longer(10'000'000, 'a');
  EXPECT_EQ(nearest_name(longer, std::vector<std::string>{longer + "b"}), "") << "it would take for ever";
  EXPECT_EQ(nearest_name("batch", std::vector<std::string>{longer, "bacth"}), "bacth");
}

}  // namespace
}  // namespace asterism
