#include "asterism/dist/gloo_transport.h"

#include <gtest/gtest.h>

#include "tests/dist/rank_runs.h"

namespace asterism::dist {
namespace {

using testing::launch_ranks;
using testing::ProgramResult;
using testing::RankRun;

// What the ranks check of their results is in rank_program.cpp.
TEST(GlooTransport, MovesBytesOfAnyTypeAndSizeInAllGroups) {
  const ProgramResult result = launch_ranks(3, {"movements"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(GlooTransport, IsOfOneRankWithoutALauncher) {
  RankRun run;
  const ProgramResult result = run.start_program("rank_program", {"movements"}).result();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

struct Case {
  std::string what;
  int exit_code;
  std::vector<std::string> said;  // in the last line of stderr
  std::string timeout = "60000";
};

void PrintTo(const Case& tried, std::ostream* out) {
  *out << tried.what;
}

class Misbehaviour : public ::testing::TestWithParam<Case> {};

TEST_P(Misbehaviour, EndsAllRanksAndIsNamed) {
  const Case& tried = GetParam();
  const ProgramResult result =
      launch_ranks(2, {"misbehave", "1", tried.what},
                   {"TEST_TIMEOUT=" + tried.timeout, "TEST_EXIT_GRACE=600", "TEST_END_GRACE=1200"});
  EXPECT_EQ(result.exit_code, tried.exit_code) << result.err;
  for (const std::string& said : tried.said) {
    EXPECT_NE(result.last_error_line().find(said), std::string::npos) << said << " is not in:\n" << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    GlooTransport, Misbehaviour,
    ::testing::Values(Case{"throws", 1, {"rank 1", "the disk is full"}}, Case{"refuses", 2, {"rank 1", "no such file"}},
                      Case{"dies", 1, {"rank 1", "killed by signal 9"}}, Case{"leaves", 1, {"rank 1", "is gone"}},
                      Case{"stays-out-of", 1, {"rank 1", "a reason"}},
                      Case{"sleeps", 1, {"rank 1", "has not come to a collective for 1.5 s", "'before'"}, "1500"},
                      Case{"stops", 1, {"rank 1", "no sign of life for 1.5 s"}, "1500"},
                      Case{"renames", 1, {"wait for each other", "'another name'", "'the loop'"}, "1500"},
                      Case{"resizes", 1, {"wait for each other", "8000 bytes", "72 bytes"}, "1500"}),
    [](const auto& info) {
      std::string name = info.param.what;
      std::erase(name, '-');
      return name;
    });

TEST(GlooTransport, EveryRankShowsThePrimaryErrorAndItsOwnPlace) {
  const ProgramResult result = launch_ranks(3, {"misbehave", "1", "throws"});
  EXPECT_NE(result.err.find("rank 1: error: the disk is full"), std::string::npos) << result.err;
  // Rank 0 writes to the terminal itself; rank 2 only repeats the reason and is not shown.
  EXPECT_NE(result.err.find("\nerror: rank 1 ("), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("rank 2:"), std::string::npos) << result.err;
}

TEST(GlooTransport, WaitsForARankThatIsSlowButAtWork) {
  for (const std::string how : {"computing", "reporting"}) {
    const ProgramResult result = launch_ranks(2, {"slow", how}, {"TEST_TIMEOUT=1200"});
    EXPECT_EQ(result.exit_code, 0) << how << ": " << result.err;
  }
}

}  // namespace
}  // namespace asterism::dist
