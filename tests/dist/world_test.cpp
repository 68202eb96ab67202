#include "asterism/dist/world.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "asterism/core/error.h"
#include "tests/dist/rank_runs.h"

namespace asterism::dist {
namespace {

using testing::announced;
using testing::free_port;
using testing::Program;
using testing::ProgramResult;
using testing::RankRun;
using testing::TemporaryFolder;

void expect_said(const ProgramResult& result, int exit_code, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  for (const std::string& part : parts) {
    EXPECT_NE(result.last_error_line().find(part), std::string::npos) << part << " is not in:\n" << result.err;
  }
}

TEST(World, OfOneProcessNeedsNobody) {
  World world(Place{});
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.local_size(), 1);
  world.compare({{"recipe", "A"}});
  EXPECT_THROW(world.run([] { run_error("wrong"); }), RunError);
  world.leave();
}

TEST(World, MeetsWithoutALauncherOfOurs) {
  RankRun run;
  const uint16_t port = free_port();
  Program& second = run.start(1, 2, port, {"place"});
  Program& first = run.start(0, 2, port, {"place"});
  EXPECT_EQ(first.result().out.substr(0, 25), "rank 0 of 2, local 0 of 2");
  EXPECT_EQ(second.result().out.substr(0, 25), "rank 1 of 2, local 1 of 2");
}

/// Three ranks without a launcher of ours, in an endless loop of collectives.
struct Loop {
  Loop() {
    const uint16_t port = free_port();
    for (int rank = 0; rank < 3; ++rank) ranks.push_back(&run.start(rank, 3, port, {"loop", folder.path()}));
    for (int rank = 0; rank < 3; ++rank) announced(folder, text("ready-", rank));
  }

  RankRun run{{"TEST_EXIT_GRACE=1000", "TEST_TIMEOUT=2000"}};
  TemporaryFolder folder;
  std::vector<Program*> ranks;
};

TEST(World, NamesTheRankThatWasKilledWithoutALauncherOfOurs) {
  Loop loops[2];
  const int killed[2] = {1, 0};  // rank 0 holds the store
  for (int i = 0; i < 2; ++i) loops[i].ranks[killed[i]]->send(SIGKILL);
  for (int i = 0; i < 2; ++i) {
    const pid_t process = loops[i].ranks[killed[i]]->id();
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == killed[i]) continue;
      expect_said(loops[i].ranks[rank]->result(), 1,
                  {text("rank ", killed[i], " ("), text("process ", process), "is gone"});
    }
  }
}

TEST(World, EndsWhenTheRankThatHoldsTheStoreIsStopped) {
  Loop loop;
  loop.ranks[0]->send(SIGSTOP);
  for (const int rank : {1, 2}) expect_said(loop.ranks[rank]->result(), 1, {"rank 0 (", "does not answer for 2 s"});
}

TEST(World, NamesTheRanksThatAreMissing) {
  RankRun run({"TEST_RENDEZVOUS=1500"});
  const uint16_t port = free_port();
  Program& first = run.start(0, 4, port, {"place"});
  Program& third = run.start(2, 4, port, {"place"});
  for (Program* rank : {&first, &third}) expect_said(rank->result(), 1, {"missing: ranks 1 and 3", "WORLD_SIZE"});
}

TEST(World, SaysThatRankZeroCannotBeReached) {
  RankRun run({"TEST_RENDEZVOUS=300"});
  const uint16_t port = free_port();
  expect_said(run.start(1, 2, port, {"place"}).result(), 1, {"cannot reach rank 0", text("127.0.0.1:", port)});
}

TEST(World, RefusesDifferentNumbersOfRanks) {
  RankRun run({"TEST_RENDEZVOUS=5000"});
  const uint16_t port = free_port();
  Program& first = run.start(0, 2, port, {"place"});
  Program& second = run.start(1, 3, port, {"place"});
  const ProgramResult results[] = {first.result(), second.result()};
  // The one that comes second finds it; the other learns of it, or has met both of its ranks and failed by then.
  EXPECT_TRUE(results[0].exit_code == 2 || results[1].exit_code == 2) << results[0].err << results[1].err;
  for (const ProgramResult& result : results) {
    EXPECT_NE(result.exit_code, 0);
    EXPECT_NE(result.err.find("WORLD_SIZE must be the same"), std::string::npos) << result.err;
  }
}

TEST(World, RefusesASecondProcessOfOneNumber) {
  RankRun run({"TEST_RENDEZVOUS=5000"});
  const uint16_t port = free_port();
  Program& first = run.start(0, 3, port, {"place"});
  Program& one = run.start(1, 3, port, {"place"});
  Program& other = run.start(1, 3, port, {"place"});
  const ProgramResult results[] = {one.result(), other.result()};
  EXPECT_TRUE((results[0].exit_code == 2) != (results[1].exit_code == 2)) << results[0].err << results[1].err;
  expect_said(first.result(), 1, {"two processes are rank 1"});
}

TEST(World, RefusesAPortThatIsTaken) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(free_port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  RankRun run;
  const uint16_t port = ntohs(address.sin_port);
  expect_said(run.start(0, 2, port, {"place"}).result(), 2, {text("port ", port), "MASTER_PORT"});
  ::close(listener);
}

TEST(World, RefusesRanksThatWereStartedWithDifferentThings) {
  RankRun run;
  const uint16_t port = free_port();
  std::vector<Program*> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(&run.start(rank, 3, port, {"compare", "2"}));
  for (Program* rank : ranks) {
    expect_said(rank->result(), 2, {"on rank 2 (", "recipe is 'recipe B', on rank 0 'recipe A'"});
  }
}

}  // namespace
}  // namespace asterism::dist
