#include "asterism/ops/cpu/compressor_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace asterism::ops::cpu {
namespace {

TEST(PoolWindows, EqualScoresAverageTheSlots) {
  // Two windows of two tokens, one channel: columns are (previous, own).
  const std::vector<double> value{100, 1, 200, 2, 300, 3, 400, 5}, score(8, 0.5);
  const bool has_previous[] = {false, true};
  std::vector<double> entry(2);
  pool_windows(PoolArgs<double>{.value = value.data(),
                                .score = score.data(),
                                .has_previous = has_previous,
                                .ratio = 2,
                                .channels = 1,
                                .overlap = true,
                                .entry = entry.data()},
               0, 2);
  EXPECT_DOUBLE_EQ(entry[0], 1.5);
  EXPECT_DOUBLE_EQ(entry[1], (100 + 200 + 3 + 5) / 4.0);
}

TEST(PoolWindows, LargeScoresDoNotOverflow) {
  const std::vector<float> value{1, 2, 3}, score{1e30f, -1e30f, 1e30f};
  std::vector<float> entry(1);
  pool_windows(PoolArgs<float>{.value = value.data(),
                               .score = score.data(),
                               .has_previous = nullptr,
                               .ratio = 3,
                               .channels = 1,
                               .overlap = false,
                               .entry = entry.data()},
               0, 1);
  EXPECT_FLOAT_EQ(entry[0], 2.0f);
}

TEST(PoolWindows, SlotsOfNoEntryAreLeftAlone) {
  const std::vector<double> value{7, 1, 8, 2}, score{0, 0, 0, std::log(3.0)}, grad_entry{4};
  const bool has_previous[] = {false};
  std::vector<double> entry(1), grad_value(4, -1.0), grad_score(4, -1.0);
  const PoolArgs<double> args{.value = value.data(),
                              .score = score.data(),
                              .has_previous = has_previous,
                              .ratio = 2,
                              .channels = 1,
                              .overlap = true,
                              .entry = entry.data()};
  pool_windows(args, 0, 1);
  EXPECT_DOUBLE_EQ(entry[0], 1.75);
  pool_windows_grad(PoolGradArgs<double>{.forward = args,
                                         .grad_entry = grad_entry.data(),
                                         .grad_value = grad_value.data(),
                                         .grad_score = grad_score.data()},
                    0, 1);
  const std::vector<double> expected_value{-1, 1, -1, 3}, expected_score{-1, -0.75, -1, 0.75};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(grad_value[i], expected_value[i], 1e-12);
    EXPECT_NEAR(grad_score[i], expected_score[i], 1e-12);
  }
}

}  // namespace
}  // namespace asterism::ops::cpu
