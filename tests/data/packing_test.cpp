#include "asterism/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"

namespace asterism::data {
namespace {

/// `size` tokens of which those from `trained_from` on are trained.
Sample sample(int64_t size, int64_t trained_from = 1) {
  Sample result;
  result.ids.resize(static_cast<size_t>(size));
  std::iota(result.ids.begin(), result.ids.end(), size * 1000);
  result.weights.assign(static_cast<size_t>(size), 0.0f);
  std::fill(result.weights.begin() + std::min(trained_from, size), result.weights.end(), 1.0f);
  result.origin = "f.jsonl:" + std::to_string(size);
  return result;
}

std::vector<int64_t> random_lengths(int64_t count, int64_t longest, uint64_t number) {
  const RandomStream stream(1, "lengths", {number});
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    lengths.push_back(1 + static_cast<int64_t>(stream.below(static_cast<uint64_t>(longest), static_cast<uint64_t>(i))));
  }
  return lengths;
}

std::vector<int64_t> in_order(size_t count) {
  std::vector<int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(PackDocuments, EveryDocumentIsPlacedOnceAndRowsFit) {
  for (const int64_t window : {1, 2, 7, 1024}) {
    for (uint64_t number = 0; number < 20; ++number) {
      const auto lengths = random_lengths(200, 64, number);
      const auto rows =
          pack_documents(lengths, in_order(200), {.sequence_length = 64, .packing = true, .window = window});
      std::vector<int64_t> placed;
      for (const auto& row : rows) {
        int64_t used = 0;
        for (const int64_t document : row) used += lengths[static_cast<size_t>(document)];
        EXPECT_LE(used, 64);
        placed.insert(placed.end(), row.begin(), row.end());
      }
      std::sort(placed.begin(), placed.end());
      EXPECT_EQ(placed, in_order(200));
    }
  }
}

TEST(PackDocuments, TakesTheLongestThatFitsAndTheOlderOfEquals) {
  const std::vector<int64_t> lengths = {5, 2, 3, 3, 4, 6};
  using Rows = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(pack_documents(lengths, in_order(6), {.sequence_length = 8}), (Rows{{0, 2}, {1, 5}, {3, 4}}));
  EXPECT_EQ(pack_documents(lengths, in_order(6), {.sequence_length = 8, .packing = false}),
            (Rows{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(pack_documents(lengths, in_order(6), {.sequence_length = 8, .packing = true, .window = 1}),
            (Rows{{0, 1}, {2, 3}, {4}, {5}}));
}

TEST(PackDocuments, RowsAreNearlyFull) {
  const auto lengths = random_lengths(4000, 512, 3);
  const auto rows = pack_documents(lengths, in_order(4000), {.sequence_length = 1024});
  const int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  EXPECT_GT(static_cast<double>(tokens) / (static_cast<double>(rows.size()) * 1024.0), 0.98);
}

TEST(PackDocuments, RowsStayNearTheirPlaceInTheOrder) {
  const auto lengths = random_lengths(2000, 100, 4);
  const auto rows = pack_documents(lengths, in_order(2000), {.sequence_length = 100, .packing = true, .window = 50});
  int64_t oldest = -1;
  for (const auto& row : rows) {
    EXPECT_GT(row[0], oldest);  // every row starts with the oldest document left
    oldest = row[0];
  }
}

TEST(PackDocuments, DocumentLongerThanARowIsAnError) {
  const std::vector<int64_t> lengths = {9};
  EXPECT_THROW(pack_documents(lengths, in_order(1), {.sequence_length = 8}), InputError);
}

TEST(PackedRow, HoldsWholeDocumentsWithoutTargetsAcrossThem) {
  std::vector<Sample> samples = {sample(3, 0), sample(2, 0), sample(4, 2)};
  const std::vector<int64_t> documents = {2, 0};
  const PackedRow row = packed_row(samples, documents, 17);
  EXPECT_EQ(row.ids, (std::vector<int64_t>{4000, 4001, 4002, 4003, 3000, 3001, 3002}));
  EXPECT_EQ(row.weights, (std::vector<float>{0, 0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(row.lengths, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(row.index, 17);
}

TEST(FitSamples, OverlongIsAnErrorThatNamesTheSample) {
  FitReport report;
  try {
    fit_samples({sample(4), sample(9)}, 8, Overlong::Error, report);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("f.jsonl:9"), std::string::npos) << error.what();
  }
}

TEST(FitSamples, DroppedSamplesAreCounted) {
  FitReport report;
  const auto kept = fit_samples({sample(4), sample(9, 5), sample(8), sample(3, 3)}, 8, Overlong::Drop, report);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[1].size(), 8);
  EXPECT_EQ(report.kept, 2);
  EXPECT_EQ(report.dropped, 1);
  EXPECT_EQ(report.tokens_lost, 9);
  EXPECT_EQ(report.trained_tokens_lost, 4);
  EXPECT_EQ(report.without_targets, 1);
}

TEST(FitSamples, TruncationKeepsTheLeftPartAndCountsWhatIsLost) {
  FitReport report;
  const auto kept = fit_samples({sample(10, 5), sample(11, 9)}, 8, Overlong::Truncate, report);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].ids.front(), 10000);
  EXPECT_EQ(kept[0].size(), 8);
  EXPECT_EQ(kept[0].trained_tokens(), 3);
  EXPECT_EQ(report.truncated, 2);
  EXPECT_EQ(report.tokens_lost, 2 + 3);
  EXPECT_EQ(report.trained_tokens_lost, 2 + 2);
  EXPECT_EQ(report.without_targets, 1);
}

}  // namespace
}  // namespace asterism::data
