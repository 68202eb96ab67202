#include "asterism/dist/rank_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::dist {
namespace {

ProcessStart shell(const std::string& script) {
  return {.program = "/bin/sh", .arguments = {"sh", "-c", script}, .environment = {"NAME=value"}, .keep_output = true};
}

void wait_for_end(RankProcess& process) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (process.runs() && std::chrono::steady_clock::now() < deadline) {
    process.read_output();
    process.poll_end();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_FALSE(process.runs());
}

TEST(RankProcess, RunsWithItsEnvironmentAndNoInput) {
  RankProcess process(shell("read line; echo $NAME \"[$line]\"; echo error >&2; exit 7"));
  wait_for_end(process);
  EXPECT_TRUE(WIFEXITED(process.status()));
  EXPECT_EQ(WEXITSTATUS(process.status()), 7);
  EXPECT_EQ(process.kept_output(), "value []\nerror\n");
}

TEST(RankProcess, KeepsTheLastWholeLines) {
  RankProcess process(shell("i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i + 1)); done"));
  wait_for_end(process);
  const std::string kept = process.kept_output();
  EXPECT_LE(kept.size(), 64U * 1024U);
  EXPECT_GT(kept.size(), 60U * 1024U);
  EXPECT_EQ(kept.substr(0, 5), "line ");
  EXPECT_TRUE(kept.ends_with("line 19999\n"));
}

TEST(RankProcess, DoesNotWaitForWhatTheProgramHasStarted) {
  RankProcess process(shell("sleep 5 & echo started"));
  const auto begin = std::chrono::steady_clock::now();
  wait_for_end(process);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(4));
  EXPECT_EQ(process.kept_output(), "started\n");
}

TEST(RankProcess, GetsSignalsByItselfAndHasAGroupOfItsOwn) {
  RankProcess process(shell("exec sleep 30"));
  process.send(SIGTERM);
  wait_for_end(process);
  EXPECT_TRUE(WIFSIGNALED(process.status()));
  EXPECT_EQ(WTERMSIG(process.status()), SIGTERM);
}

TEST(RankProcess, IsKilledWithItsObject) {
  pid_t id = 0;
  {
    RankProcess process(shell("trap '' TERM INT; while true; do sleep 1; done"));
    id = process.id();
    EXPECT_EQ(::kill(id, 0), 0);
  }
  EXPECT_EQ(::kill(id, 0), -1);
}

TEST(RankProcess, NamesAProgramThatCannotBeStarted) {
  ProcessStart start = shell("");
  start.program = "/no/such/program";
  EXPECT_EQ(testing::error_of<RunError>([&] { RankProcess process(start); }),
            "cannot start /no/such/program: No such file or directory");
}

}  // namespace
}  // namespace asterism::dist
