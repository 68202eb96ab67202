#include "asterism/core/progress.h"

#include <gtest/gtest.h>

#include <sstream>

namespace asterism {
namespace {

struct Screen {
  explicit Screen(bool terminal) : log(out, terminal) {}
  std::string take() {
    const std::string text = out.str();
    out.str("");
    return text;
  }

  std::ostringstream out;
  Logger log;
  double now = 100.0;
  Progress::Clock clock = [this] { return now; };
};

TEST(Progress, PlainLinesComeEveryFewSecondsWithRateAndTimeLeft) {
  Screen screen(false);
  Progress progress({.label = "train", .unit = "steps", .total = 100}, screen.log, screen.clock);
  screen.now += 4.9;
  progress.update(9);
  EXPECT_EQ(screen.take(), "");
  screen.now += 0.1;
  progress.update(10, "loss 2.5");
  EXPECT_EQ(screen.take(), "train: 10/100 steps (10%), 2.00 steps/s, 45s left, loss 2.5\n");
  screen.now += 4.0;
  progress.update(20);
  EXPECT_EQ(screen.take(), "");
}

TEST(Progress, StepsDoneBeforeAResumeDoNotCountIntoTheRate) {
  Screen screen(false);
  Progress progress({.label = "train", .unit = "steps", .total = 100, .first = 50}, screen.log, screen.clock);
  screen.now += 10.0;
  progress.update(60);
  EXPECT_EQ(screen.take(), "train: 60/100 steps (60%), 1.00 steps/s, 40s left\n");
}

TEST(Progress, TheLastLineComesOnceAndSaysHowLongItTook) {
  Screen screen(false);
  Progress progress({.label = "read", .unit = "rows"}, screen.log, screen.clock);
  progress.update(500);
  screen.now += 2.0;
  progress.finish();
  progress.finish();
  EXPECT_EQ(screen.take(), "read: 500 rows, 250 rows/s, took 2.0s\n");
}

TEST(Progress, ATerminalGetsABarThatIsReplaced) {
  Screen screen(true);
  {
    Progress progress({.label = "train", .unit = "steps", .total = 4}, screen.log, screen.clock);
    screen.now += 1.0;
    progress.update(1, "loss 2.5");
    EXPECT_EQ(screen.take(),
              "\033[?7ltrain  25% [######------------------] 1/4 steps  1.00 steps/s  3.0s left  loss 2.5\033[?7h");
    screen.now += 0.01;
    progress.update(2);
    EXPECT_EQ(screen.take(), "");
  }
  EXPECT_EQ(screen.take(), "\r\033[K");
}

TEST(Progress, AStretchedWorkFillsTheBarButDoesNotOverflowIt) {
  Screen screen(true);
  Progress progress({.label = "x", .unit = "rows", .total = 2}, screen.log, screen.clock);
  screen.now += 1.0;
  progress.update(5);
  EXPECT_NE(screen.take().find("100% [########################] 5/2 rows"), std::string::npos);
}

TEST(Progress, QuietShowsNothing) {
  Screen screen(true);
  screen.log.set_quiet(true);
  Progress progress({.label = "train", .unit = "steps", .total = 4}, screen.log, screen.clock);
  screen.now += 60.0;
  progress.update(2);
  progress.finish();
  EXPECT_EQ(screen.take(), "");
}

TEST(Progress, DurationsAreReadable) {
  EXPECT_EQ(readable_duration(0.44), "0.4s");
  EXPECT_EQ(readable_duration(45.4), "45s");
  EXPECT_EQ(readable_duration(59.7), "1m00s");
  EXPECT_EQ(readable_duration(504), "8m24s");
  EXPECT_EQ(readable_duration(7500), "2h05m");
  EXPECT_EQ(readable_duration(3 * 86400 + 4 * 3600 + 59), "3d04h");
  EXPECT_EQ(readable_duration(1e300), "?");
}

TEST(Progress, RatesHaveThreeDigits) {
  EXPECT_EQ(readable_rate(0.0), "0.00");
  EXPECT_EQ(readable_rate(9.994), "9.99");
  EXPECT_EQ(readable_rate(9.996), "10.0");
  EXPECT_EQ(readable_rate(250.0), "250");
  EXPECT_EQ(readable_rate(999.6), "1.00k");
  EXPECT_EQ(readable_rate(4.56e6), "4.56M");
}

}  // namespace
}  // namespace asterism
