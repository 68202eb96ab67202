#include "asterism/dist/launch.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "asterism/core/error.h"
#include "tests/dist/rank_runs.h"

namespace asterism::dist {
namespace {

using testing::announced;
using testing::Program;
using testing::ProgramResult;
using testing::RankRun;
using testing::TemporaryFolder;

std::string content(const std::filesystem::path& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

struct Launched {
  int exit_code;
  std::string out, err;
};

// The ranks run `script`, in this process's name.
Launched launch_shell(int ranks, const std::string& script, const std::vector<std::string>& environment = {},
                      std::chrono::milliseconds grace = std::chrono::seconds(5)) {
  LaunchOptions options;
  options.ranks = ranks;
  options.program = "/bin/sh";
  options.arguments = {"sh", "-c", script};
  options.environment = environment;
  options.cores = 7;
  options.end_grace = options.kill_grace = grace;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int exit_code = launch(options);
  return {exit_code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

TEST(Launch, PlacesTheRanksAndShowsTheOutputOfTheFirst) {
  const std::string say = "echo $RANK of $WORLD_SIZE, here $LOCAL_RANK, $MASTER_ADDR; echo error of $RANK >&2";
  const Launched launched = launch_shell(3, say);
  EXPECT_EQ(launched.exit_code, 0);
  EXPECT_EQ(launched.out, "0 of 3, here 0, 127.0.0.1\n");
  EXPECT_EQ(launched.err, "error of 0\n");
}

TEST(Launch, DividesTheCores) {
  const std::string say = "echo $OMP_NUM_THREADS $OMP_WAIT_POLICY";
  EXPECT_EQ(launch_shell(2, say).out, "3\n");
  EXPECT_EQ(launch_shell(8, say).out, "1 passive\n");
  EXPECT_EQ(launch_shell(8, say, {"OMP_NUM_THREADS=5", "OMP_WAIT_POLICY=active"}).out, "5 active\n");
}

TEST(Launch, ReturnsTheCodeOfTheFirstFailure) {
  EXPECT_EQ(launch_shell(2, "exit 130").exit_code, 130);
  EXPECT_EQ(launch_shell(2, "exit $((2 * RANK))").exit_code, 2);
  EXPECT_EQ(launch_shell(2, "exit $((3 * (1 - RANK)))").exit_code, 3);
  EXPECT_EQ(launch_shell(3, "test $RANK = 2 || sleep 0.3; exit $((RANK + 1))").exit_code, 3);
}

TEST(Launch, ShowsTheOutputOfARankThatFails) {
  const Launched launched =
      launch_shell(3, "if [ $RANK = 1 ]; then echo begin; echo 'error: the disk is full' >&2; exit 1; fi");
  EXPECT_EQ(launched.exit_code, 1);
  EXPECT_EQ(launched.err.substr(0, launched.err.find("error: rank 1 (")),
            "rank 1: begin\nrank 1: error: the disk is full\n");
  EXPECT_TRUE(launched.err.ends_with("ended with exit code 1: the disk is full\n")) << launched.err;
}

TEST(Launch, LeavesTheLastWordToTheFirstRank) {
  const Launched launched = launch_shell(3, "echo \"error: no such file\" >&2; test $RANK = 0 || sleep 0.2; exit 2");
  EXPECT_EQ(launched.exit_code, 2);
  EXPECT_EQ(launched.err, "error: no such file\n");
}

TEST(Launch, KillsRanksThatDoNotEnd) {
  const Launched launched = launch_shell(2, "trap '' TERM; test $RANK = 0 && exit 1; while true; do sleep 0.1; done",
                                         {}, std::chrono::milliseconds(200));
  EXPECT_EQ(launched.exit_code, 1);
}

struct Sent {
  int signal;
  bool to_group;
  const char* counted;
};

TEST(Launch, PassesEverySignalToAllRanksOnce) {
  // A terminal sends SIGINT to the whole group of the launcher.
  for (const auto& [signal, to_group, counted] :
       {Sent{SIGINT, true, "1 stops, 1 saves"}, Sent{SIGTERM, false, "1 stops, 1 saves"}}) {
    RankRun run;
    const TemporaryFolder folder;
    Program& launcher = run.launch(2, {"signals", folder.path()});
    for (const char* rank : {"ready-0", "ready-1"}) announced(folder, rank);
    launcher.send(SIGUSR1);
    ::kill(to_group ? -launcher.id() : launcher.id(), signal);
    EXPECT_EQ(launcher.result().exit_code, 130) << launcher.result().err;
    EXPECT_EQ(content(folder / "signals-0"), counted);
    EXPECT_EQ(content(folder / "signals-1"), counted);
  }
}

TEST(Launch, EndsTheRanksWithItself) {
  RankRun run;
  const TemporaryFolder folder;
  Program& launcher = run.launch(2, {"idle", folder.path()});
  const pid_t ranks[] = {announced(folder, "ready-0"), announced(folder, "ready-1")};
  launcher.send(SIGKILL);
  for (const pid_t rank : ranks) EXPECT_TRUE(testing::ends(rank));
}

TEST(Launch, EndsTheRanksThatStayWhenOneIsKilled) {
  RankRun run({"TEST_END_GRACE=500"});  // shorter than what the ranks take to end by themselves
  const TemporaryFolder folder;
  Program& launcher = run.launch(3, {"idle", folder.path()});
  for (const char* rank : {"ready-0", "ready-2"}) announced(folder, rank);
  ::kill(announced(folder, "ready-1"), SIGKILL);
  const ProgramResult result = launcher.result();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.last_error_line().find("rank 1 ("), std::string::npos) << result.err;
  EXPECT_NE(result.last_error_line().find("killed by signal 9"), std::string::npos) << result.err;
}

TEST(Launch, SaysThatAProgramCannotBeStarted) {
  LaunchOptions options;
  options.ranks = 2;
  options.program = "/no/such/program";
  options.arguments = {"program"};
  EXPECT_NE(testing::error_of<RunError>([&] { launch(options); }).find("cannot start /no/such/program"),
            std::string::npos);
}

TEST(Launch, RunsUnderTorchrun) {
  const std::filesystem::path torchrun = ASTERISM_SOURCE_DIR "/.venv/bin/torchrun";
  if (!std::filesystem::exists(torchrun)) GTEST_SKIP() << torchrun << " is not here: run make setup";
  RankRun run;
  const std::string relative = std::filesystem::relative(torchrun, ASTERISM_BINARY_DIR);
  const ProgramResult result = run.start_program(relative, {"--no-python", "--standalone", "--nproc-per-node=2",
                                                            ASTERISM_BINARY_DIR "/rank_program", "movements"})
                                   .result();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace asterism::dist
