#include "asterism/dist/gloo_transport.h"

#include <gtest/gtest.h>

#include <map>

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

const Case kCases[] = {
    {"throws", 1, {"rank 1", "the disk is full"}},
    {"refuses", 2, {"rank 1", "no such file"}},
    {"dies", 1, {"rank 1", "killed by signal 9"}},
    {"leaves", 1, {"rank 1", "is gone"}},
    {"stays-out-of", 1, {"rank 1", "a reason"}},
    {"sleeps", 1, {"rank 1", "has not come to a collective for 1.5 s", "'before'"}, "1500"},
    {"stops", 1, {"rank 1", "no sign of life for 1.5 s"}, "1500"},
    {"renames", 1, {"wait for each other", "'another name'", "'the loop'"}, "1500"},
    {"resizes", 1, {"wait for each other", "8000 bytes", "72 bytes"}, "1500"},
};

class Misbehaviour : public ::testing::TestWithParam<Case> {
 protected:
  // All at once: they mostly wait.
  static void SetUpTestSuite() {
    for (const Case& tried : kCases) {
      auto& run = runs_[tried.what] = std::make_unique<RankRun>(
          std::vector<std::string>{"TEST_TIMEOUT=" + tried.timeout, "TEST_EXIT_GRACE=600", "TEST_END_GRACE=1000"});
      launchers_[tried.what] = &run->launch(2, {"misbehave", "1", tried.what});
    }
  }
  static void TearDownTestSuite() { runs_.clear(); }

  static inline std::map<std::string, std::unique_ptr<RankRun>> runs_;
  static inline std::map<std::string, testing::Program*> launchers_;
};

TEST_P(Misbehaviour, EndsAllRanksAndIsNamed) {
  const Case& tried = GetParam();
  const ProgramResult result = launchers_.at(tried.what)->result();
  EXPECT_EQ(result.exit_code, tried.exit_code) << result.err;
  for (const std::string& said : tried.said) {
    EXPECT_NE(result.last_error_line().find(said), std::string::npos) << said << " is not in:\n" << result.err;
  }
  runs_.erase(tried.what);  // and looks whether a process is left
}

INSTANTIATE_TEST_SUITE_P(GlooTransport, Misbehaviour, ::testing::ValuesIn(kCases), [](const auto& info) {
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

TEST(GlooTransport, WaitsForRanksThatAreSlowButAtWork) {
  const ProgramResult result = launch_ranks(3, {"slow"}, {"TEST_TIMEOUT=1200"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace asterism::dist
