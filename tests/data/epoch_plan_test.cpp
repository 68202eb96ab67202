#include "asterism/data/epoch_plan.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

/// Samples of the given lengths.
DataIndex index_of_lengths(const std::vector<size_t>& lengths) {
  std::vector<SampleEntry> entries;
  for (const size_t length : lengths) {
    entries.push_back(make_entry({std::vector<int64_t>(length, 1), std::vector<float>(length, 1.0f), ""}, 0, 0, 0));
  }
  return DataIndex({{"a", 0, true, {}}}, {}, std::move(entries));
}

TEST(EpochPlan, PacksTheSamplesInTheGivenOrder) {
  const DataIndex index = index_of_lengths({3, 4, 5, 6});
  const EpochPlan plan = make_plan(index, {{3, 1, 2, 1, 0}, {}}, {.sequence_length = 10});
  EXPECT_EQ(plan.tokens, 6 + 4 + 5 + 4 + 3);
  ASSERT_EQ(plan.rows.rows(), 3);
  // Positions in the order: sample 3 with the first visit of sample 1, sample 2 with the second.
  EXPECT_EQ(std::vector<uint32_t>(plan.rows.row(0).begin(), plan.rows.row(0).end()), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(std::vector<uint32_t>(plan.rows.row(1).begin(), plan.rows.row(1).end()), (std::vector<uint32_t>{2, 3}));
  EXPECT_EQ(plan.order.samples.at(3), 1u);
}

TEST(FileOrder, IsThatOfTheIndex) {
  const DataIndex index = index_of_lengths({3, 4, 5, 6});
  const std::vector<Extent> extents = {{0, 1, 0.5, true}, {1, 3, 2.0, false}};
  const EpochOrder order = file_order(index, extents);
  EXPECT_EQ(order.samples, (std::vector<uint32_t>{0, 1, 2, 3}));
  ASSERT_EQ(order.streams.size(), 2u);
  EXPECT_TRUE(order.streams[0].empty());
  ASSERT_EQ(order.streams[1].size(), 3u);
  EXPECT_EQ(order.streams[1][2].sample, 3u);
  EXPECT_EQ(order.streams[1][2].position, 3u);
}

}  // namespace
}  // namespace asterism::data
