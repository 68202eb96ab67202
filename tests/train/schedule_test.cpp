#include "asterism/train/schedule.h"

#include <gtest/gtest.h>

namespace asterism::train {
namespace {

TEST(LearningRate, WarmsUpLinearlyThenFollowsTheCurve) {
  ScheduleSection schedule;
  schedule.warmup_steps = 4;
  schedule.min_ratio = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate(2.0, schedule, 0, 12), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(2.0, schedule, 3, 12), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(2.0, schedule, 4, 12), 2.0);
  EXPECT_NEAR(learning_rate(2.0, schedule, 8, 12), 2.0 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(learning_rate(2.0, schedule, 12, 12), 0.2, 1e-12);
  schedule.decay = Decay::kLinear;
  EXPECT_NEAR(learning_rate(2.0, schedule, 6, 12), 2.0 * (0.1 + 0.9 * 0.75), 1e-12);
  schedule.decay = Decay::kConstant;
  EXPECT_DOUBLE_EQ(learning_rate(2.0, schedule, 11, 12), 2.0);
}

TEST(LearningRate, IsAFunctionOfTheStepAlone) {
  // TC16b: a resumed run asks for the same step and gets the same rate.
  const ScheduleSection schedule;
  EXPECT_EQ(learning_rate(1.0, schedule, 7, 20), learning_rate(1.0, schedule, 7, 20));
  EXPECT_GT(learning_rate(1.0, schedule, 7, 20), learning_rate(1.0, schedule, 8, 20));
}

}  // namespace
}  // namespace asterism::train
