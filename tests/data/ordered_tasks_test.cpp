#include "asterism/data/ordered_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace asterism::data {
namespace {

TEST(OrderedTasks, ResultsComeInTheOrderOfSubmission) {
  for (const int64_t threads : {0, 1, 4}) {
    OrderedTasks<int> tasks(threads);
    for (int i = 0; i < 50; ++i) {
      tasks.submit([i] {
        if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return i;
      });
    }
    EXPECT_EQ(tasks.pending(), 50u);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(tasks.take(), i);
    EXPECT_EQ(tasks.pending(), 0u);
  }
}

TEST(OrderedTasks, AnErrorReachesTheCallerInItsPlace) {
  for (const int64_t threads : {0, 3}) {
    OrderedTasks<int> tasks(threads);
    for (int i = 0; i < 5; ++i) {
      tasks.submit([i] {
        if (i == 2) throw std::runtime_error("broken");
        return i;
      });
    }
    EXPECT_EQ(tasks.take(), 0);
    EXPECT_EQ(tasks.take(), 1);
    EXPECT_THROW(tasks.take(), std::runtime_error);
    EXPECT_EQ(tasks.take(), 3);
  }
}

TEST(OrderedTasks, WithoutThreadsATaskRunsWhenItIsTaken) {
  OrderedTasks<int> tasks(0);
  int ran = 0;
  tasks.submit([&] { return ++ran; });
  EXPECT_EQ(ran, 0);
  EXPECT_EQ(tasks.take(), 1);
}

TEST(OrderedTasks, EndingWaitsForWhatRunsAndDropsTheRest) {
  std::atomic<int> begun = 0, ended = 0;
  {
    OrderedTasks<int> tasks(2);
    for (int i = 0; i < 100; ++i) {
      tasks.submit([&] {
        ++begun;
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return ++ended;
      });
    }
    while (begun == 0) std::this_thread::yield();
  }
  EXPECT_EQ(begun, ended);
  EXPECT_LT(begun, 100);
}

}  // namespace
}  // namespace asterism::data
