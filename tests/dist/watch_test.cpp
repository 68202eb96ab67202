#include "asterism/dist/watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tests/support/temporary_folder.h"

namespace asterism::dist {
namespace {

using namespace std::chrono_literals;
using testing::error_of;

/// The watches of two ranks in this process.
class WatchTest : public ::testing::Test {
 protected:
  void start(std::chrono::milliseconds timeout) {
    WatchOptions options;
    options.timeout = timeout;
    options.exit_grace = 1h;
    options.gone_after = 500ms;
    for (int rank = 0; rank < 2; ++rank) {
      store_->set(text("state/", rank), "");
      members_.push_back({rank, "node", 100 + rank, ""});
    }
    for (int rank = 0; rank < 2; ++rank) {
      watches_.push_back(std::make_unique<Watch>(store_->another_connection(), members_, rank, options));
    }
  }

  // The PeerError that rank 0 gets, once there is one.
  std::string failure_of_rank_0() {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < deadline) {
      try {
        watches_[0]->check();
      } catch (const PeerError& error) {
        return error.what();
      }
      std::this_thread::sleep_for(5ms);
    }
    return "";
  }

  std::shared_ptr<Store> store_ = Store::serve(0, /*local=*/true, "run");
  std::vector<Member> members_;
  std::vector<std::unique_ptr<Watch>> watches_;
};

TEST_F(WatchTest, TellsTheOthersAndWakesThem) {
  start(1min);
  std::atomic<int> woken = 0, not_woken = 0;
  const auto kept = watches_[0]->on_failure([&] { ++woken; });
  auto dropped = watches_[0]->on_failure([&] { ++not_woken; });
  dropped.reset();
  watches_[1]->fail("the disk is full");
  EXPECT_EQ(failure_of_rank_0(), "rank 1 (node, process 101): the disk is full");
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(not_woken, 0);
  // The second report changes nothing, and who comes late is woken at once.
  watches_[0]->fail("a consequence");
  EXPECT_EQ(failure_of_rank_0(), "rank 1 (node, process 101): the disk is full");
  std::atomic<int> late = 0;
  const auto registered = watches_[0]->on_failure([&] { ++late; });
  EXPECT_EQ(late, 1);
}

TEST_F(WatchTest, FindsTheRankThatDoesNotCome) {
  start(800ms);
  watches_[1]->begin("all_gather 'a'");
  watches_[0]->enter("all_gather 'b'");
  EXPECT_EQ(failure_of_rank_0(),
            "rank 1 (node, process 101): has not come to a collective for 0.8 s; the last one that it began was "
            "all_gather 'a'");
}

TEST_F(WatchTest, FindsTheRankWithoutASignOfLife) {
  start(800ms);
  watches_[1]->stop();
  watches_[0]->enter("all_gather 'b'");
  EXPECT_NE(failure_of_rank_0().find("rank 1 (node, process 101): no sign of life for 0.8 s"), std::string::npos);
}

TEST_F(WatchTest, FindsWhoIsGoneFromAMeeting) {
  start(1min);
  watches_[1]->stop();
  watches_[0]->enter("the start", /*meeting=*/true);
  EXPECT_EQ(failure_of_rank_0(), "rank 1 (node, process 101) is gone: it gives no sign of life");
}

TEST_F(WatchTest, FindsRanksThatWaitForEachOther) {
  start(800ms);
  watches_[1]->enter("all_gather 'a'");
  watches_[0]->enter("all_gather 'b'");
  EXPECT_NE(failure_of_rank_0().find("rank 0 in all_gather 'b'"), std::string::npos);
}

TEST_F(WatchTest, GivesTimeToARankThatShowsProgress) {
  start(1200ms);
  watches_[0]->enter("all_gather 'b'");
  for (int i = 0; i < 35; ++i) {
    std::this_thread::sleep_for(50ms);
    watches_[1]->show_progress();
    EXPECT_NO_THROW(watches_[0]->check());
  }
}

TEST_F(WatchTest, ExplainsABrokenConnectionByTheRankThatIsGone) {
  start(1min);
  watches_[1]->stop();
  EXPECT_EQ(error_of<PeerError>([&] { watches_[0]->explain(std::runtime_error("Connection reset by peer")); }),
            "rank 1 (node, process 101) is gone: its connections broke and it gives no sign of life");
}

TEST_F(WatchTest, ExplainsABrokenConnectionBetweenRanksThatLive) {
  start(1min);
  const std::string error =
      error_of<PeerError>([&] { watches_[0]->explain(std::runtime_error("Connection reset by peer")); });
  EXPECT_NE(error.find("although all are alive: Connection reset by peer"), std::string::npos) << error;
}

TEST_F(WatchTest, TakesTheLossOfTheStoreForTheEndOfItsHolder) {
  start(1min);
  store_.reset();
  EXPECT_EQ(failure_of_rank_0().substr(0, 16), "rank 0 is gone: ");
}

using WatchDeathTest = WatchTest;

TEST_F(WatchDeathTest, EndsAProcessThatDoesNotEndByItself) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto store = Store::serve(0, /*local=*/true, "run");
        store->set("state/0", "");
        WatchOptions options;
        options.exit_grace = 100ms;
        Watch watch(store->another_connection(), {{0, "node", 100, ""}}, 0, options);
        watch.fail("the disk is full");
        std::this_thread::sleep_for(20s);
      },
      ::testing::ExitedWithCode(1), "rank 0 \\(node, process 100\\): the disk is full");
}

}  // namespace
}  // namespace asterism::dist
