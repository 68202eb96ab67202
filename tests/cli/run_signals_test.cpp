#include "asterism/cli/run_signals.h"

#include <gtest/gtest.h>

#include <csignal>

namespace asterism::cli {
namespace {

TEST(RunSignals, AskToStopOnceTheyAreCaught) {
  for (const int signal : {SIGINT, SIGTERM}) {
    RunSignals signals;
    signals.catch_stops();
    EXPECT_FALSE(signals.stop_requested());
    std::raise(signal);
    EXPECT_TRUE(signals.stop_requested());
    EXPECT_FALSE(signals.take_save_request());
  }
}

TEST(RunSignals, AskToSaveOnceForTheRequestsSoFar) {
  const RunSignals signals;
  std::raise(SIGUSR1);
  std::raise(SIGUSR1);
  EXPECT_FALSE(signals.stop_requested());
  EXPECT_TRUE(signals.take_save_request());
  EXPECT_FALSE(signals.take_save_request());
}

using RunSignalsDeathTest = ::testing::Test;

TEST(RunSignalsDeathTest, ASecondStopEndsTheProcess) {
  const auto stop_twice = [] {
    RunSignals signals;
    signals.catch_stops();
    std::raise(SIGTERM);
    std::raise(SIGINT);
  };
  EXPECT_EXIT(stop_twice(), ::testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(RunSignalsDeathTest, AStopBeforeThereIsAnythingToSaveEndsTheProcess) {
  const auto stop_early = [] {
    const RunSignals signals;
    std::raise(SIGTERM);
  };
  EXPECT_EXIT(stop_early(), ::testing::KilledBySignal(SIGTERM), "");
}

TEST(RunSignals, GiveTheHandlersBack) {
  {
    RunSignals signals;
    signals.catch_stops();
  }
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const auto handler = std::signal(signal, SIG_DFL);
    EXPECT_EQ(handler, SIG_DFL) << signal;
  }
}

}  // namespace
}  // namespace asterism::cli
