// Nothing is lost: `asterism train` with a checkpoint at every step is killed with SIGKILL at random moments, again and
// again, and in the end has walked the road of a run that nobody disturbed. ASTERISM_LONG=1: 200 kills.
#include <csignal>
#include <cstdlib>

#include "tests/crash/killed_run.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

using testing::Program;
using testing::ProgramResult;

class KilledRun : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<std::string> command(const std::string& steps) const {
    return {"train", run_.recipe(), "--set", "train.steps=" + steps};
  }

  /// Lets the program run to a random moment and kills it there: in one of four lives soon after its start, else within
  /// some steps after the first that it has done.
  void live_and_be_killed(int life) {
    Program program(command(kEndless));
    const auto started = std::chrono::steady_clock::now();
    const size_t before = run_.whole_lines().size();
    if (life % 4 == 3) {
      run_.sleep_up_to(startup_);
    } else {
      ASSERT_TRUE(program.wait_until([&] { return run_.whole_lines().size() > before + 1; })) << program.result().err;
      startup_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
      run_.sleep_up_to(0.15);
    }
    program.send(SIGKILL);
    ASSERT_EQ(program.result().exit_code, 128 + SIGKILL) << program.result().err;
  }

  KilledFiles run_{GetParam()};
  double startup_ = 1.0;  // seconds until a program has done a step
};

TEST_P(KilledRun, WalksTheRoadOfAnUndisturbedOne) {
  const int kills = std::getenv("ASTERISM_LONG") != nullptr ? 100 : 3;
  for (int life = 0; life < kills && !HasFatalFailure(); ++life) {
    SCOPED_TRACE(text("life ", life));
    live_and_be_killed(life);
    run_.expect_nothing_lost();
  }
  ASSERT_FALSE(HasFatalFailure());
  const std::string steps = std::to_string(run_.newest() + 3);
  const ProgramResult last = testing::run_asterism(command(steps));
  ASSERT_EQ(last.exit_code, 0) << last.err;
  const auto disturbed = run_.files().metrics();
  const std::string disturbed_result = run_.result();

  std::filesystem::remove_all(run_.files() / "runs");
  const ProgramResult undisturbed = testing::run_asterism(command(steps));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;
  expect_same_metrics(disturbed, run_.files().metrics());
  EXPECT_TRUE(disturbed_result == run_.result());
  RecordProperty("kills", kills);
  RecordProperty("steps", steps);
  std::cout << "[ KilledRun] " << kills << " kills in " << steps << " steps\n";
}

INSTANTIATE_TEST_SUITE_P(Modes, KilledRun,
                         ::testing::Values("lora: {rank: 2, alpha: 4, dropout: 0.1, targets: [attention, experts]}\n",
                                           ""),
                         [](const auto& mode) { return mode.index == 0 ? "Lora" : "Full"; });

}  // namespace
}  // namespace asterism::cli
