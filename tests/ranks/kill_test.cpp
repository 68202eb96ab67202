// tests/crash with several ranks, one of which is killed each time: while the ranks load, in a step, while one saves.
// The number of ranks changes from life to life. ASTERISM_LONG=1: each of three ranks is killed 20 times at each
// moment, and some are stopped.
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "tests/crash/killed_run.h"
#include "tests/dist/rank_runs.h"

namespace asterism::cli {
namespace {

namespace fs = std::filesystem;
using testing::Program;
using testing::ProgramResult;
using testing::RankRun;

enum class Moment { kLoad, kStep, kSave };

bool is_long() {
  return std::getenv("ASTERISM_LONG") != nullptr;
}

std::string bytes_of(const fs::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

/// The process that is rank `rank` of the launcher's run; 0 when it has not started.
pid_t process_of_rank(pid_t launcher, int rank) {
  const std::string id = std::to_string(launcher);
  std::ifstream children("/proc/" + id + "/task/" + id + "/children");
  for (pid_t child = 0; children >> child;) {
    const std::string variables = '\0' + bytes_of("/proc/" + std::to_string(child) + "/environ");
    if (variables.find(text('\0', "RANK=", rank, '\0')) != std::string::npos) return child;
  }
  return 0;
}

class KilledRanks : public ::testing::Test {
 protected:
  std::vector<std::string> command(int ranks, const std::string& steps) const {
    // Strict: the same bits for any number of ranks.
    return {"train", run_.recipe(),         "--ranks", std::to_string(ranks), "--set", "train.deterministic=strict",
            "--set", "train.steps=" + steps};
  }

  /// A checkpoint is being written: its folder has another name until it is complete.
  bool is_saving() const {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(run_.files().run("checkpoints"), none)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("step-") && name != "latest") return true;
    }
    return false;
  }

  /// Waits for a random moment of the kind; false when the run has ended by then.
  bool wait_for(Program& program, Moment moment) {
    const auto started = std::chrono::steady_clock::now();
    const size_t before = run_.whole_lines().size();
    if (moment == Moment::kLoad) {
      run_.sleep_up_to(startup_);
      return program.runs();
    }
    if (!program.wait_until([&] { return run_.whole_lines().size() > before + 1; })) return false;
    startup_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    if (moment == Moment::kSave) return program.wait_until([&] { return is_saving(); });
    run_.sleep_up_to(0.15);
    return program.runs();
  }

  /// One rank of a run gets a signal and all end: the launcher's result. No process may be left.
  ProgramResult live_and_signal(int ranks, int rank, Moment moment, int signal) {
    RankRun run;
    Program& program = run.start_program("asterism", command(ranks, kEndless));
    pid_t process = 0;
    const bool is_there = program.wait_until([&] { return (process = process_of_rank(program.id(), rank)) != 0; }) &&
                          wait_for(program, moment);
    EXPECT_TRUE(is_there) << program.result().err;
    EXPECT_EQ(::kill(process, signal), 0);
    program.wait_until([] { return false; });  // kills it after a minute: another exit code
    const ProgramResult ended = program.result();
    EXPECT_EQ(ended.exit_code, 1) << ended.err;
    EXPECT_NE(ended.last_error_line().find(text("rank ", rank, " (")), std::string::npos) << ended.err;
    return ended;
  }

  void live_and_be_killed(int ranks, int rank, Moment moment) {
    const ProgramResult ended = live_and_signal(ranks, rank, moment, SIGKILL);
    EXPECT_NE(ended.last_error_line().find("killed by signal 9"), std::string::npos) << ended.err;
    run_.expect_nothing_lost();
  }

  KilledFiles run_{"lora: {rank: 2, alpha: 4, dropout: 0.1, targets: [attention, experts]}\n"};
  double startup_ = 1.0;  // seconds until the ranks have done a step
};

TEST_F(KilledRanks, WalkTheRoadOfOneRankThatNobodyDisturbed) {
  const int rounds = is_long() ? 20 : 1, most_ranks = is_long() ? 3 : 2;
  int kills = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const Moment moment : {Moment::kStep, Moment::kSave, Moment::kLoad}) {
      for (int rank = 0; rank < most_ranks; ++rank) {
        const int ranks = std::max(rank + 1, 2 + kills % 2);
        SCOPED_TRACE(text("kill ", ++kills, ": rank ", rank, " of ", ranks));
        live_and_be_killed(ranks, rank, moment);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  const std::string steps = std::to_string(run_.newest() + 3);
  const ProgramResult last = testing::run_asterism(command(2, steps));
  ASSERT_EQ(last.exit_code, 0) << last.err;
  const auto disturbed = run_.files().metrics();
  const std::string disturbed_result = run_.result();
  fs::remove_all(run_.files() / "runs");
  const ProgramResult undisturbed = testing::run_asterism(command(1, steps));
  ASSERT_EQ(undisturbed.exit_code, 0) << undisturbed.err;
  expect_same_metrics(disturbed, run_.files().metrics());
  EXPECT_TRUE(disturbed_result == run_.result());
  std::cout << "[ KilledRanks] " << kills << " kills in " << steps << " steps\n";
}

TEST_F(KilledRanks, ARankThatIsStoppedEndsAll) {
  // It takes the time-out of 30 s each; the short form is Misbehaviour.EndsAllRanksAndIsNamed/stops in tests/dist.
  if (!is_long()) GTEST_SKIP() << "set ASTERISM_LONG=1";
  for (const Moment moment : {Moment::kStep, Moment::kSave}) {
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(text("rank ", rank));
      const ProgramResult ended = live_and_signal(2, rank, moment, SIGSTOP);
      EXPECT_NE(ended.last_error_line().find("for 30 s"), std::string::npos) << ended.err;
      run_.expect_nothing_lost();
    }
  }
}

}  // namespace
}  // namespace asterism::cli
