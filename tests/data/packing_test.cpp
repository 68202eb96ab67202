#include "asterism/data/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "tests/support/temporary_folder.h"

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

using Rows = std::vector<std::vector<uint32_t>>;

Rows rows_of(const RowPlan& plan) {
  Rows rows;
  for (int64_t row = 0; row < plan.rows(); ++row) rows.emplace_back(plan.row(row).begin(), plan.row(row).end());
  return rows;
}

/// From 1 to `longest`: evenly spread, or the shorter the more frequent, as conversations are.
std::vector<uint32_t> random_lengths(size_t count, uint64_t longest, uint64_t number, double skew = 1.0) {
  const RandomStream stream(1, "lengths", {number});
  std::vector<uint32_t> lengths;
  for (size_t i = 0; i < count; ++i) {
    const double share = std::pow(stream.uniform(i), skew);
    lengths.push_back(1 + static_cast<uint32_t>(share * static_cast<double>(longest - 1) + 0.5));
  }
  return lengths;
}

double fill_ratio(const std::vector<uint32_t>& lengths, const RowPlan& plan, int64_t sequence_length) {
  const auto tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  return tokens / (static_cast<double>(plan.rows()) * static_cast<double>(sequence_length));
}

/// The rule of the header, word for word.
Rows packed_by_the_rule(const std::vector<uint32_t>& lengths, const PackingOptions& options) {
  std::vector<uint32_t> window;
  uint32_t next = 0;
  const auto refill = [&] {
    while (window.size() < static_cast<size_t>(options.window) && next < lengths.size()) window.push_back(next++);
  };
  Rows rows;
  for (refill(); !window.empty();) {
    int64_t space = options.sequence_length;
    auto chosen = window.begin();
    rows.emplace_back();
    while (chosen != window.end()) {
      space -= lengths[*chosen];
      rows.back().push_back(*chosen);
      window.erase(chosen);
      refill();
      chosen = window.end();
      for (auto candidate = window.begin(); candidate != window.end(); ++candidate) {
        const bool fits = lengths[*candidate] <= space;
        if (fits && (chosen == window.end() || lengths[*candidate] > lengths[*chosen])) chosen = candidate;
      }
    }
  }
  return rows;
}

TEST(PackDocuments, EveryDocumentIsPlacedOnceAndRowsFit) {
  for (const int64_t window : {1, 2, 7, 1024}) {
    for (uint64_t number = 0; number < 20; ++number) {
      const auto lengths = random_lengths(200, 64, number);
      const RowPlan plan = pack_documents(lengths, {.sequence_length = 64, .packing = true, .window = window});
      for (const auto& row : rows_of(plan)) {
        int64_t used = 0;
        for (const uint32_t document : row) used += lengths[document];
        EXPECT_LE(used, 64);
        EXPECT_GT(used, 0);
      }
      std::vector<uint32_t> placed = plan.documents;
      std::sort(placed.begin(), placed.end());
      for (uint32_t i = 0; i < 200; ++i) EXPECT_EQ(placed.at(i), i);
      EXPECT_EQ(placed.size(), 200u);
    }
  }
}

TEST(PackDocuments, FollowsItsRule) {
  for (const int64_t window : {1, 3, 50}) {
    for (uint64_t number = 0; number < 30; ++number) {
      // Lengths up to 5000 reach three levels of the bitmap; those up to 3 are nearly all equal.
      const uint64_t longest = number % 3 == 0 ? 3 : number % 3 == 1 ? 100 : 5000;
      const auto lengths = random_lengths(300, longest, number, 2.0);
      const PackingOptions options{.sequence_length = static_cast<int64_t>(longest), .packing = true, .window = window};
      EXPECT_EQ(rows_of(pack_documents(lengths, options)), packed_by_the_rule(lengths, options))
          << window << " " << number;
    }
  }
}

TEST(PackDocuments, TakesTheLongestThatFitsAndTheOlderOfEquals) {
  const std::vector<uint32_t> lengths = {5, 2, 3, 3, 4, 6};
  EXPECT_EQ(rows_of(pack_documents(lengths, {.sequence_length = 8})), (Rows{{0, 2}, {1, 5}, {3, 4}}));
  EXPECT_EQ(rows_of(pack_documents(lengths, {.sequence_length = 8, .packing = false})),
            (Rows{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(rows_of(pack_documents(lengths, {.sequence_length = 8, .packing = true, .window = 1})),
            (Rows{{0, 1}, {2, 3}, {4}, {5}}));
  EXPECT_EQ(pack_documents({}, {.sequence_length = 8}).rows(), 0);
}

TEST(PackDocuments, RowsAreNearlyFullOnMixedLengths) {
  struct Case {
    uint64_t longest;
    double skew;
  };
  for (const auto& [longest, skew] : {Case{512, 1.0}, {2048, 1.0}, {4096, 3.0}, {4096, 6.0}}) {
    const auto lengths = random_lengths(50'000, longest, 3, skew);
    const double ratio = fill_ratio(lengths, pack_documents(lengths, {.sequence_length = 4096}), 4096);
    RecordProperty("fill_ratio_" + std::to_string(longest) + "_" + std::to_string(skew), std::to_string(ratio));
    EXPECT_GT(ratio, 0.98) << "lengths up to " << longest << ", skew " << skew;
  }
}

TEST(PackDocuments, RowsStayNearTheirPlaceInTheOrder) {
  const auto lengths = random_lengths(2000, 100, 4);
  const RowPlan plan = pack_documents(lengths, {.sequence_length = 100, .packing = true, .window = 50});
  int64_t oldest = -1;
  for (const auto& row : rows_of(plan)) {
    EXPECT_GT(row[0], oldest);  // every row starts with the oldest document left
    oldest = row[0];
  }
}

TEST(PackDocuments, ManyDocumentsTakeLinearTime) {
  // A window that is searched, or an order that is sorted, would take minutes in the long form.
  const size_t count = std::getenv("ASTERISM_LONG") != nullptr ? 10'000'000 : 500'000;
  const auto lengths = random_lengths(count, 8192, 5, 4.0);
  const RowPlan plan = pack_documents(lengths, {.sequence_length = 8192});
  EXPECT_EQ(plan.documents.size(), count);
  EXPECT_GT(fill_ratio(lengths, plan, 8192), 0.98);
}

TEST(PackDocuments, ImpossibleArgumentsAreErrors) {
  const std::vector<uint32_t> lengths = {9};
  EXPECT_THROW(pack_documents(lengths, {.sequence_length = 8}), InputError);
  EXPECT_THROW(pack_documents(lengths, {.sequence_length = 0}), InputError);
  EXPECT_THROW(pack_documents(lengths, {.sequence_length = 9, .packing = true, .window = 0}), InputError);
}

TEST(AppendDocument, HoldsWholeDocumentsWithoutTargetsAcrossThem) {
  PackedRow row;
  append_document(row, sample(4, 2));
  append_document(row, sample(3, 0));
  EXPECT_EQ(row.ids, (std::vector<int64_t>{4000, 4001, 4002, 4003, 3000, 3001, 3002}));
  EXPECT_EQ(row.weights, (std::vector<float>{0, 0, 1, 1, 0, 1, 1}));
  EXPECT_EQ(row.lengths, (std::vector<int64_t>{4, 3}));
}

/// The samples that can be packed.
std::vector<Sample> fit_samples(std::vector<Sample> samples, const FitOptions& options, FitReport& report) {
  std::vector<Sample> kept;
  for (Sample& candidate : samples) {
    if (fit_sample(candidate, options, report)) kept.push_back(std::move(candidate));
  }
  return kept;
}

TEST(FitSamples, OverlongIsAnErrorThatNamesTheSample) {
  FitReport report;
  try {
    fit_samples({sample(4), sample(9)}, {.sequence_length = 8}, report);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("f.jsonl:9"), std::string::npos) << error.what();
  }
}

TEST(FitSamples, DroppedSamplesAreCounted) {
  FitReport report;
  const auto kept = fit_samples({sample(4), sample(9, 5), sample(8), sample(3, 3)},
                                {.sequence_length = 8, .overlong = Overlong::Drop}, report);
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
  const auto kept =
      fit_samples({sample(10, 5), sample(11, 9)}, {.sequence_length = 8, .overlong = Overlong::Truncate}, report);
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].ids.front(), 10000);
  EXPECT_EQ(kept[0].size(), 8);
  EXPECT_EQ(kept[0].trained_tokens(), 3);
  EXPECT_EQ(report.truncated, 2);
  EXPECT_EQ(report.tokens_lost, 2 + 3);
  EXPECT_EQ(report.trained_tokens_lost, 2 + 2);
  EXPECT_EQ(report.without_targets, 1);
}

TEST(FitSamples, WithoutTargetsCanBeAnError) {
  FitReport report;
  const FitOptions options{8, Overlong::Truncate, WithoutTargets::Error};
  EXPECT_EQ(fit_samples({sample(4)}, options, report).size(), 1u);
  for (const auto& [bad, words] : {std::pair(sample(3, 3), "f.jsonl:3: nothing"), {sample(9, 8), "truncated"}}) {
    const std::string error = testing::error_of<InputError>([&, bad = bad] { fit_samples({bad}, options, report); });
    EXPECT_NE(error.find(words), std::string::npos) << error;
    EXPECT_NE(error.find("data.without_targets"), std::string::npos) << error;
  }
}

TEST(FitSamples, ReportsAddUp) {
  FitReport sum{1, 2, 3, 4, 5, 6};
  sum += FitReport{10, 20, 30, 40, 50, 60};
  const int64_t fields[] = {sum.kept,           sum.dropped, sum.truncated, sum.tokens_lost, sum.trained_tokens_lost,
                            sum.without_targets};
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(fields[i], 11 * (i + 1));
}

}  // namespace
}  // namespace asterism::data
