#include "asterism/data/epoch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

std::vector<uint32_t> order_of(const std::vector<Extent>& extents, const OrderOptions& options, int64_t epoch = 0) {
  return epoch_order(extents, options, epoch).samples;
}

/// How often each of `count` samples is visited.
std::vector<int> visits(const std::vector<uint32_t>& order, size_t count) {
  std::vector<int> counts(count, 0);
  for (const uint32_t sample : order) ++counts[sample];
  return counts;
}

TEST(EpochOrder, EveryEpochIsAnotherPermutation) {
  for (const bool seekable : {true, false}) {
    const std::vector<Extent> extents = {{0, 50, 1.0, seekable}};
    const OrderOptions options{.seed = 3, .shuffle_buffer = 8};
    const auto first = order_of(extents, options, 0), second = order_of(extents, options, 1);
    EXPECT_EQ(visits(first, 50), std::vector<int>(50, 1));
    EXPECT_EQ(visits(second, 50), std::vector<int>(50, 1));
    EXPECT_NE(first, second);
    EXPECT_EQ(first, order_of(extents, options, 0));
    EXPECT_NE(first, order_of(extents, {.seed = 4, .shuffle_buffer = 8}, 0));
    EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  }
}

TEST(EpochOrder, PermutationsAreUniform) {
  // Each of 6 orders of 3 samples in 6000 epochs: 1000 +- 5 standard deviations.
  const std::vector<Extent> extents = {{0, 3, 1.0, true}}, streamed = {{0, 3, 1.0, false}};
  for (const auto& which : {extents, streamed}) {
    std::map<std::vector<uint32_t>, int> counts;
    for (int64_t epoch = 0; epoch < 6000; ++epoch) ++counts[order_of(which, {.shuffle_buffer = 3}, epoch)];
    EXPECT_EQ(counts.size(), 6u);
    for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 5 * 29);
  }
}

TEST(EpochOrder, AShuffleBufferNeverReadsFurtherAheadThanItHolds) {
  const std::vector<Extent> extents = {{0, 200, 1.0, false}};
  const auto order = order_of(extents, {.shuffle_buffer = 10});
  for (uint32_t position = 0; position < order.size(); ++position) EXPECT_LT(order[position], position + 10);
  const auto whole = order_of(extents, {.shuffle_buffer = 1000});
  EXPECT_GT(*std::max_element(whole.begin(), whole.begin() + 20), 100u);
  std::vector<uint32_t> unchanged(200);
  std::iota(unchanged.begin(), unchanged.end(), 0);
  EXPECT_EQ(order_of(extents, {.shuffle_buffer = 1}), unchanged);
}

TEST(EpochOrder, WholeWeightsRepeatASource) {
  const std::vector<Extent> extents = {{0, 5, 1.0, true}, {5, 5, 3.0, true}, {10, 4, 2.0, false}};
  for (const bool shuffle : {true, false}) {
    const std::vector<int> expected = {1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 2, 2, 2, 2};
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      EXPECT_EQ(visits(order_of(extents, {.shuffle = shuffle}, epoch), 14), expected);
    }
    EXPECT_EQ(epochs_are_alike(extents, {.shuffle = shuffle}), !shuffle);
  }
}

TEST(EpochOrder, HalfASourceInOneEpochAndTheOtherHalfInTheNext) {
  for (const bool shuffle : {true, false}) {
    const std::vector<Extent> extents = {{0, 10, 0.5, true}, {10, 6, 0.5, false}};
    const OrderOptions options{.shuffle = shuffle};
    EXPECT_FALSE(epochs_are_alike(extents, options));
    std::vector<int> sum(16, 0);
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      const auto counts = visits(order_of(extents, options, epoch), 16);
      EXPECT_EQ(std::accumulate(counts.begin(), counts.begin() + 10, 0), 5);
      EXPECT_EQ(std::accumulate(counts.begin() + 10, counts.end(), 0), 3);
      for (size_t i = 0; i < 16; ++i) sum[i] += counts[i];
    }
    EXPECT_EQ(sum, std::vector<int>(16, 1));
  }
}

TEST(EpochOrder, AnyWeightIsKeptOverManyEpochs) {
  for (const double weight : {0.1, 0.3, 1.0 / 3, 1.7, 2.25}) {
    const std::vector<Extent> extents = {{0, 20, weight, true}};
    std::vector<int> sum(20, 0);
    for (int64_t epoch = 0; epoch < 60; ++epoch) {
      const auto counts = visits(order_of(extents, {}, epoch), 20);
      EXPECT_NEAR(std::accumulate(counts.begin(), counts.end(), 0), 20 * weight, 1.0);
      for (size_t i = 0; i < 20; ++i) sum[i] += counts[i];
    }
    for (const int count : sum) EXPECT_NEAR(count, 60 * weight, 1.0) << weight;
  }
}

TEST(EpochOrder, ListsAreMergedInProportion) {
  const std::vector<Extent> extents = {{0, 30, 1.0, true}, {30, 10, 1.0, true}, {40, 10, 2.0, false}};
  const auto order = order_of(extents, {.shuffle = false});
  std::vector<int> counts(3, 0);
  for (size_t position = 0; position < order.size(); ++position) {
    ++counts[order[position] < 30 ? 0 : order[position] < 40 ? 1 : 2];
    const double share = static_cast<double>(position + 1) / 60.0;
    EXPECT_NEAR(counts[0], 30 * share, 1.0);
    EXPECT_NEAR(counts[1], 10 * share, 1.0);
    EXPECT_NEAR(counts[2], 20 * share, 1.0);
  }
  // Each list is as it stands, the second pass after the first.
  std::vector<uint32_t> last;
  std::copy_if(order.begin(), order.end(), std::back_inserter(last), [](uint32_t sample) { return sample >= 40; });
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(last[i], 40 + i % 10);
}

TEST(EpochOrder, StreamsSayWhereTheirReadsStand) {
  const std::vector<Extent> extents = {{0, 12, 1.0, true}, {12, 9, 1.5, false}, {21, 5, 2.0, false}};
  for (const bool shuffle : {true, false}) {
    const EpochOrder order = epoch_order(extents, {.shuffle = shuffle, .shuffle_buffer = 4}, 2);
    ASSERT_EQ(order.streams.size(), 3u);
    EXPECT_TRUE(order.streams[0].empty());
    std::vector<bool> named(order.samples.size(), false);
    for (size_t stream : {1, 2}) {
      uint32_t previous = extents[stream].first;
      int passes = 1;
      for (const StreamVisit& visit : order.streams[stream]) {
        EXPECT_EQ(order.samples.at(visit.position), visit.sample);
        EXPECT_FALSE(named.at(visit.position));
        named[visit.position] = true;
        if (visit.sample < previous) ++passes;
        previous = visit.sample;
      }
      EXPECT_EQ(passes, 2);
    }
    for (size_t i = 0; i < named.size(); ++i) EXPECT_EQ(named[i], order.samples[i] >= 12);
  }
}

TEST(EpochOrder, ImpossibleOptionsAreRefused) {
  EXPECT_THROW(order_of({{0, 5, 1.0, true}}, {.shuffle_buffer = 0}), InputError);
  EXPECT_THROW(order_of({{0, 5, 1e9, true}}, {}), InputError);
  EXPECT_TRUE(order_of({}, {}).empty());
}

}  // namespace
}  // namespace asterism::data
