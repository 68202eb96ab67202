#include "asterism/data/length_stats.h"

#include <gtest/gtest.h>

#include <array>

namespace asterism::data {
namespace {

TEST(LengthStats, PercentilesAreLengthsThatOccur) {
  LengthStats stats;
  for (const int64_t length : {50, 10, 40, 20, 30}) stats.add(length);
  EXPECT_EQ(stats.count(), 5);
  EXPECT_DOUBLE_EQ(stats.mean(), 30.0);
  EXPECT_EQ(stats.percentile(0.0), 10);
  EXPECT_EQ(stats.percentile(0.2), 10);
  EXPECT_EQ(stats.percentile(0.5), 30);
  EXPECT_EQ(stats.percentile(0.9), 50);
  EXPECT_EQ(stats.percentile(1.0), 50);
}

TEST(LengthStats, NothingHasNoLengths) {
  const LengthStats stats;
  EXPECT_EQ(stats.percentile(0.5), 0);
  EXPECT_EQ(stats.mean(), 0.0);
  EXPECT_TRUE(stats.histogram().empty());
}

TEST(LengthStats, HistogramReachesFromTheShortestToTheLongest) {
  LengthStats stats;
  for (const int64_t length : {65, 128, 129, 1024}) stats.add(length);
  const auto bars = stats.histogram();
  ASSERT_EQ(bars.size(), 4u);
  const std::array<std::array<int64_t, 3>, 4> expected = {{{64, 128, 2}, {128, 256, 1}, {256, 512, 0}, {512, 1024, 1}}};
  for (size_t i = 0; i < bars.size(); ++i) {
    EXPECT_EQ((std::array{bars[i].above, bars[i].up_to, bars[i].documents}), expected[i]);
  }
  LengthStats tiny;
  tiny.add(1);
  ASSERT_EQ(tiny.histogram().size(), 1u);
  EXPECT_EQ(tiny.histogram()[0].above, 0);
}

TEST(LengthStats, DocumentsThatAreTooLongAreNotPacked) {
  FitCounter fit(100);
  for (const int64_t length : {60, 40, 101, 100, 70, 500}) fit.add(length);
  const FitSummary summary = fit.summary();
  EXPECT_EQ(summary.dropped, 2);
  EXPECT_EQ(summary.dropped_tokens, 601);
  EXPECT_EQ(summary.tokens, 270);
  EXPECT_EQ(summary.rows, 3);
  EXPECT_DOUBLE_EQ(summary.fill_ratio(), 0.9);
  EXPECT_EQ(FitCounter(100).summary().fill_ratio(), 0.0);
}

TEST(LengthStats, MoreThanAMillionDocumentsArePackedInParts) {
  FitCounter fit(4);
  const int64_t documents = (int64_t{1} << 20) + 2;
  for (int64_t i = 0; i < documents; ++i) fit.add(2);
  EXPECT_EQ(fit.summary().rows, documents / 2);
  EXPECT_EQ(fit.summary().rows, documents / 2);  // asking changes nothing
}

}  // namespace
}  // namespace asterism::data
