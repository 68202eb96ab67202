#include "asterism/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

/// Samples of 2 to 6 tokens; the first id names the sample.
std::vector<Sample> numbered_samples(int64_t count) {
  std::vector<Sample> samples;
  for (int64_t i = 0; i < count; ++i) {
    const size_t size = 2 + static_cast<size_t>(i % 5);
    samples.push_back({std::vector<int64_t>(size, i), std::vector<float>(size, 1.0f), "s"});
  }
  return samples;
}

DataSetOptions options_with(int64_t batch, uint64_t seed = 0, bool shuffle = true) {
  return {.packing = {.sequence_length = 10}, .shuffle = shuffle, .seed = seed, .batch = batch};
}

std::vector<int64_t> samples_in(const PackedRow& row) {
  std::vector<int64_t> names;
  int64_t begin = 0;
  for (const int64_t length : row.lengths) {
    names.push_back(row.ids[static_cast<size_t>(begin)]);
    begin += length;
  }
  return names;
}

/// The samples of the rows [begin, end) of the stream, read a row a step.
std::vector<int64_t> samples_of_rows(const DataSet& set, int64_t begin, int64_t end) {
  std::vector<int64_t> names;
  for (int64_t step = begin; step < end; ++step) {
    for (const auto& row : set.rows_of_step(step)) {
      for (const int64_t name : samples_in(row)) names.push_back(name);
    }
  }
  return names;
}

TEST(DataSet, EveryEpochUsesEverySampleOnce) {
  const DataSet set(numbered_samples(57), options_with(1));
  int64_t begin = 0;
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const int64_t end = begin + set.rows_per_epoch(epoch);
    EXPECT_EQ(set.epoch_of_step(begin), epoch);
    EXPECT_EQ(set.epoch_of_step(end - 1), epoch);
    EXPECT_EQ(set.steps_of_epochs(epoch + 1), end);
    epochs.push_back(samples_of_rows(set, begin, end));
    std::vector<int64_t> sorted = epochs.back();
    std::sort(sorted.begin(), sorted.end());
    for (int64_t i = 0; i < 57; ++i) EXPECT_EQ(sorted.at(static_cast<size_t>(i)), i);
    EXPECT_EQ(sorted.size(), 57u);
    begin = end;
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
}

TEST(DataSet, StepsDoNotDependOnWhatWasReadBefore) {
  const DataSet forward(numbered_samples(57), options_with(4)), backward(numbered_samples(57), options_with(4));
  std::map<int64_t, std::vector<PackedRow>> seen;
  for (int64_t step = 0; step < 20; ++step) seen[step] = forward.rows_of_step(step);
  for (int64_t step = 19; step >= 0; --step) {
    const auto rows = backward.rows_of_step(step);
    ASSERT_EQ(rows.size(), 4u);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].ids, seen[step][i].ids);
      EXPECT_EQ(rows[i].weights, seen[step][i].weights);
      EXPECT_EQ(rows[i].index, seen[step][i].index);
    }
  }
}

TEST(DataSet, BatchSizeOnlyCutsTheStream) {
  const DataSet ones(numbered_samples(57), options_with(1)), fives(numbered_samples(57), options_with(5));
  EXPECT_EQ(samples_of_rows(ones, 0, 100), samples_of_rows(fives, 0, 20));
}

TEST(DataSet, BatchGoesOnWithTheNextEpoch) {
  const DataSet set(numbered_samples(57), options_with(5));
  const int64_t rows = set.rows_per_epoch(0);
  ASSERT_NE(rows % 5, 0) << "choose another number of samples";
  const auto last = set.rows_of_step(rows / 5);
  ASSERT_EQ(last.size(), 5u);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(last[static_cast<size_t>(i)].index, (rows / 5 * 5 + i) % rows);
  }
  EXPECT_EQ(set.epoch_of_step(rows / 5), 0);
  EXPECT_EQ(set.epoch_of_step(rows / 5 + 1), 1);
}

TEST(DataSet, BatchLargerThanTheDataRepeatsIt) {
  const DataSet set(numbered_samples(3), options_with(16));
  EXPECT_EQ(set.rows_of_step(2).size(), 16u);
  EXPECT_EQ(set.steps_of_epochs(1), 1);
}

TEST(DataSet, SeedChoosesThePermutation) {
  const DataSet a(numbered_samples(57), options_with(1, 1)), b(numbered_samples(57), options_with(1, 2));
  EXPECT_NE(samples_of_rows(a, 0, 10), samples_of_rows(b, 0, 10));
}

TEST(DataSet, WithoutShuffleEveryEpochIsAlike) {
  const DataSet set(numbered_samples(20), options_with(1, 0, false));
  const int64_t rows = set.rows_per_epoch(0);
  EXPECT_EQ(set.rows_of_step(0).at(0).ids.front(), 0);
  EXPECT_EQ(samples_of_rows(set, 0, rows), samples_of_rows(set, rows, 2 * rows));
}

TEST(DataSet, EvaluationReadsEveryRowOnceInOrder) {
  const DataSet set(numbered_samples(57), options_with(8));
  std::vector<int64_t> names;
  int64_t next = 0;
  for (int64_t i = 0; i < set.evaluation_batches(); ++i) {
    for (const auto& row : set.evaluation_rows(i)) {
      EXPECT_EQ(row.index, next++);
      for (const int64_t name : samples_in(row)) names.push_back(name);
    }
  }
  EXPECT_EQ(names.front(), 0);
  std::sort(names.begin(), names.end());
  ASSERT_EQ(names.size(), 57u);
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  const DataSet small(numbered_samples(3), options_with(8));
  EXPECT_EQ(small.evaluation_batches(), 1);
  EXPECT_LE(small.evaluation_rows(0).size(), 3u);
  EXPECT_THROW(small.evaluation_rows(1), RunError);
}

TEST(DataSet, ReportAddsUp) {
  auto samples = numbered_samples(10);
  samples.push_back({{1, 2, 3}, {1, 0, 0}, "nothing"});
  const DataSet set(samples, options_with(1));
  const DataSetReport& report = set.report();
  EXPECT_EQ(report.samples, 10);
  EXPECT_EQ(report.tokens, 40);
  EXPECT_EQ(report.trained_tokens, 30);
  EXPECT_EQ(report.fit.without_targets, 1);
  EXPECT_DOUBLE_EQ(report.fill_ratio, 40.0 / (10.0 * static_cast<double>(report.rows)));
}

TEST(DataSet, NothingToTrainIsAnError) {
  EXPECT_THROW(DataSet({}, options_with(1)), InputError);
  EXPECT_THROW(DataSet({{{1, 2}, {1, 0}, "s"}}, options_with(1)), InputError);
}

TEST(DataSet, ReadsFilesFoldersAndPatterns) {
  const test::TemporaryFolder folder;
  folder.write("b.jsonl", "{\"input_ids\": [3, 3]}\n{broken\n");
  folder.write("a.json", "[{\"input_ids\": [1, 1]}, {\"input_ids\": [2, 2], \"labels\": [-100, -100]}]");
  RowOptions rows;
  rows.bad_rows = BadRows::Skip;
  DataSetOptions options = options_with(2, 0, false);
  options.packing.packing = false;
  const std::string path = folder.path().string();
  const DataSet set({path, path + "/b*"}, rows, options);
  EXPECT_EQ(samples_of_rows(set, 0, 1), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(set.report().read.rows, 6);
  EXPECT_EQ(set.report().read.bad_rows, 2);
  EXPECT_EQ(set.report().fit.without_targets, 1);
  EXPECT_EQ(set.report().samples, 3);
}

}  // namespace
}  // namespace asterism::data
