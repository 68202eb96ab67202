#include "asterism/dist/roster.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/support/temporary_folder.h"

namespace asterism::dist {
namespace {

using namespace std::chrono_literals;
using testing::error_of;

Member member(int rank) {
  return {rank, "node", 100 + rank, "127.0.0.1"};
}

TEST(Roster, DescribesRanks) {
  EXPECT_EQ(describe(member(3)), "rank 3 (node, process 103)");
  EXPECT_EQ(describe_ranks({4}), "rank 4");
  EXPECT_EQ(describe_ranks({0, 1}), "ranks 0 and 1");
  EXPECT_EQ(describe_ranks({1, 3, 5, 6, 7, 8}), "ranks 1, 3 and 5 to 8");
}

TEST(Roster, JoinsWhenAllAreHere) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  auto other =
      std::async(std::launch::async, [&] { return Roster(store->another_connection(), 2).join(member(1), 10s); });
  const auto members = Roster(store, 2).join(member(0), 10s);
  ASSERT_EQ(members.size(), 2);
  EXPECT_EQ(members[1].process, 101);
  EXPECT_EQ(members[1].address, "127.0.0.1");
  EXPECT_EQ(other.get().size(), 2);
}

TEST(Roster, NamesWhoIsMissingAndWhoIsHere) {
  Roster roster(Store::serve(0, /*local=*/true, "run"), 4);
  const std::string error = error_of<RunError>([&] { roster.join(member(1), 50ms); });
  EXPECT_NE(error.find("1 of 4 ranks are here after 0.05 s; missing: ranks 0, 2 and 3; here: rank 1 (node"),
            std::string::npos)
      << error;
}

TEST(Roster, MeetsSomeOfTheRanks) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  Roster roster(store, 3);
  auto other = std::async(std::launch::async, [&] {
    Roster(store->another_connection(), 3).meet("half", 2, {0, 2}, 10s);
  });
  roster.meet("half", 0, {0, 2}, 10s);
  other.get();
  const std::string error = error_of<RunError>([&] { roster.meet("all", 0, {0, 1}, 20ms); });
  EXPECT_NE(error.find("1 of 2 ranks are here at all after 0.02 s; missing: rank 1;"), std::string::npos) << error;
}

TEST(Roster, RefusesTwoOfOneNumberAndAnotherSize) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  Roster(store, 1).join(member(0), 1s);
  const Member twin = {0, "other", 7, ""};
  const std::string error = error_of<InputError>([&] { Roster(store, 1).join(twin, 1s); });
  EXPECT_NE(error.find("two processes are rank 0: rank 0 (node, process 100) and rank 0 (other, process 7)"),
            std::string::npos)
      << error;
  const std::string size = error_of<InputError>([&] { Roster(store, 2).join(member(1), 1s); });
  EXPECT_NE(size.find("rank 1 was started for 2 ranks, rank 0 for 1"), std::string::npos) << size;
}

TEST(Roster, KeepsTheFirstFailureAndEndsTheWaitsOfOthers) {
  const auto store = Store::serve(0, /*local=*/true, "run");
  Roster roster(store, 3);
  EXPECT_FALSE(roster.failure().has_value());
  EXPECT_EQ(roster.report({2, "the disk \xff is full"}).rank, 2);
  EXPECT_EQ(roster.report({1, "a consequence"}).rank, 2);
  EXPECT_NE(error_of<PeerError>([&] { roster.meet("end", 0, {0, 1, 2}, 10s); }).find("is full"), std::string::npos);
}

}  // namespace
}  // namespace asterism::dist
