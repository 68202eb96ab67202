#include "asterism/checkpoint/problem_list.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

TEST(ProblemList, EmptyItThrowsNothing) {
  const ProblemList problems;
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(problems.count("missing"), 0U);
  EXPECT_NO_THROW(problems.throw_if_any("a", "b"));
}

TEST(ProblemList, ShowsTenOfAKindAndCountsTheRest) {
  ProblemList problems;
  problems.add("second kind first", "x");
  for (int i = 0; i < 12; ++i) problems.add("missing", "t" + std::to_string(i));
  EXPECT_EQ(problems.count("missing"), 12U);
  const std::string message =
      asterism::testing::error_of<InputError>([&] { problems.throw_if_any("model", "fetch it again"); });
  EXPECT_EQ(message,
            "model:\n  1 second kind first:\n    x\n  12 missing:\n    t0\n    t1\n    t2\n    t3\n    t4\n    t5\n"
            "    t6\n    t7\n    t8\n    t9\n    and 2 more\n  fetch it again");
}

}  // namespace
}  // namespace asterism::checkpoint
