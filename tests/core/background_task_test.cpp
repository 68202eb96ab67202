#include "asterism/core/background_task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "asterism/core/error.h"

namespace asterism {
namespace {

TEST(BackgroundTask, TheOwnerGoesOnWhileItRuns) {
  std::latch release(1);
  std::atomic<bool> done = false;
  BackgroundTask task;
  task.start([&] {
    release.wait();
    done = true;
  });
  task.check();
  EXPECT_FALSE(done);
  release.count_down();
  task.wait();
  EXPECT_TRUE(done);
}

TEST(BackgroundTask, OnePieceAtATimeInTheirOrder) {
  std::atomic<int> running = 0;
  std::vector<int> order;
  BackgroundTask task;
  for (int i = 0; i < 5; ++i) {
    task.start([&, i] {
      EXPECT_EQ(++running, 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      order.push_back(i);
      --running;
    });
  }
  task.wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(BackgroundTask, AFailureReachesTheOwnerOnce) {
  const auto fail = [] { throw RunError("no space"); };
  BackgroundTask task;
  task.start(fail);
  EXPECT_THROW(task.wait(), RunError);
  task.wait();
  task.start(fail);
  EXPECT_THROW(task.start([] {}), RunError);
  task.start(fail);
  const auto check_until_it_throws = [&] {
    for (;;) {
      task.check();
      std::this_thread::yield();
    }
  };
  EXPECT_THROW(check_until_it_throws(), RunError);
  task.check();
}

TEST(BackgroundTask, AFailureThatNobodyAskedForIsLogged) {
  ::testing::internal::CaptureStderr();
  {
    BackgroundTask task;
    task.start([] { throw RunError("no space left for the checkpoint"); });
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("error: no space left for the checkpoint"), std::string::npos) << log;
}

}  // namespace
}  // namespace asterism
