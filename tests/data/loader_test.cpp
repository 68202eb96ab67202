#include "asterism/data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "asterism/data/step_reader.h"
#include "tests/data/compress.h"
#include "tests/data/numbered_rows.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using testing::error_of;

DataSetOptions options_with(int64_t batch, uint64_t seed = 0, bool shuffle = true) {
  return {.shuffle = shuffle, .seed = seed, .batch = batch};
}

/// A file of `count` rows that lives as long as the test program.
std::vector<DataSource> rows_of(int64_t count) {
  static const test::TemporaryFolder folder;
  const std::string name = text(count, ".jsonl");
  if (!std::filesystem::exists(folder / name)) folder.write(name, numbered_rows(0, count));
  return {{folder / name}};
}

/// The samples of the rows [begin, end) of the stream, read a row a step.
std::vector<int64_t> samples_of_rows(const DataSet& set, int64_t begin, int64_t end) {
  std::vector<int64_t> names;
  for (int64_t step = begin; step < end; ++step) {
    for (const int64_t name : names_in(set.rows_of_step(step))) names.push_back(name);
  }
  return names;
}

TEST(DataSet, EveryEpochUsesEverySampleOnce) {
  const DataSet set = make_data_set(rows_of(57), options_with(1));
  int64_t begin = 0;
  std::vector<std::vector<int64_t>> epochs;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    const int64_t end = begin + set.rows_per_epoch(epoch);
    EXPECT_EQ(set.epoch_at(set.position_of_step(begin)), epoch);
    EXPECT_EQ(set.epoch_at(set.position_of_step(end - 1)), epoch);
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
  const DataSet forward = make_data_set(rows_of(57), options_with(4)),
                backward = make_data_set(rows_of(57), options_with(4));
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

TEST(DataSet, RanksShareTheRowsOfAStep) {
  // TC4 as far as the data go: what the ranks count together is what one rank counts.
  const DataSet set = make_data_set(rows_of(57), options_with(5));
  const auto count = [](const std::vector<PackedRow>& rows) {
    int64_t trained = 0;
    for (const PackedRow& row : rows) {
      trained += std::count_if(row.weights.begin(), row.weights.end(), [](float weight) { return weight > 0; });
    }
    return trained;
  };
  for (int64_t step = 0; step < 6; ++step) {
    const auto whole = set.rows_of_step(step);
    for (const int ranks : {2, 3, 8}) {
      std::vector<PackedRow> all(whole.size());  // they take the rows in turn
      int64_t trained = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto rows = set.rows_of_step(step, rank, ranks);
        trained += count(rows);
        for (size_t i = 0; i < rows.size(); ++i) all.at(i * ranks + rank) = rows[i];
      }
      EXPECT_EQ(names_in(all), names_in(whole));
      EXPECT_EQ(trained, count(whole));
    }
  }
}

TEST(DataSet, BatchSizeOnlyCutsTheStream) {
  const DataSet ones = make_data_set(rows_of(57), options_with(1)), fives = make_data_set(rows_of(57), options_with(5));
  EXPECT_EQ(samples_of_rows(ones, 0, 100), samples_of_rows(fives, 0, 20));
}

TEST(DataSet, BatchGoesOnWithTheNextEpoch) {
  const DataSet set = make_data_set(rows_of(57), options_with(5));
  const int64_t rows = set.rows_per_epoch(0);
  ASSERT_NE(rows % 5, 0) << "choose another number of samples";
  const auto last = set.rows_of_step(rows / 5);
  ASSERT_EQ(last.size(), 5u);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(last[static_cast<size_t>(i)].index, (rows / 5 * 5 + i) % rows);
  }
  EXPECT_EQ(set.epoch_at(set.position_of_step(rows / 5)), 0);
  EXPECT_EQ(set.epoch_at(set.position_of_step(rows / 5 + 1)), 1);
}

TEST(DataSet, BatchLargerThanTheDataRepeatsIt) {
  const DataSet set = make_data_set(rows_of(3), options_with(16));
  EXPECT_EQ(set.rows_of_step(2).size(), 16u);
  EXPECT_EQ(set.steps_of_epochs(1), 1);
}

TEST(DataSet, PositionsAreOfRows) {
  const DataSet set = make_data_set(rows_of(57), options_with(5));
  const int64_t rows = set.rows_per_epoch(0);
  EXPECT_EQ(set.advance({}, rows), (StreamPosition{0, rows}));
  EXPECT_EQ(set.advance({0, rows}, 1), (StreamPosition{1, 1}));
  EXPECT_EQ(set.epoch_at({0, rows}), 1);
  EXPECT_EQ(set.advance({0, 3}, 2 + rows), (StreamPosition{1, 5}));
  EXPECT_THROW(set.position_of_step(-1), RunError);
}

TEST(DataSet, SeedChoosesThePermutation) {
  const DataSet a = make_data_set(rows_of(57), options_with(1, 1)), b = make_data_set(rows_of(57), options_with(1, 2));
  EXPECT_NE(samples_of_rows(a, 0, 10), samples_of_rows(b, 0, 10));
}

TEST(DataSet, WithoutShuffleEveryEpochIsAlike) {
  const DataSet set = make_data_set(rows_of(20), options_with(1, 0, false));
  const int64_t rows = set.rows_per_epoch(0);
  EXPECT_EQ(set.rows_of_step(0).at(0).ids.front(), 0);
  EXPECT_EQ(samples_of_rows(set, 0, rows), samples_of_rows(set, rows, 2 * rows));
}

TEST(DataSet, IdentityChangesWithDataAndOrder) {
  const StreamIdentity base = make_data_set(rows_of(20), options_with(1)).identity();
  EXPECT_EQ(make_data_set(rows_of(20), options_with(7)).identity().fingerprint, base.fingerprint);
  EXPECT_EQ(base.samples, 20);
  EXPECT_EQ(base.tokens, 80);
  const std::vector<DataSource> twice = {{rows_of(20)[0].path, 2.0}};
  const PreparationOptions longer{.fit = {.sequence_length = 11}};
  for (const StreamIdentity& other :
       {make_data_set(rows_of(21), options_with(1)).identity(),
        make_data_set(rows_of(20), options_with(1, 1)).identity(),
        make_data_set(rows_of(20), options_with(1, 0, false)).identity(),
        make_data_set(rows_of(20), {.packing = false}).identity(), make_data_set(twice).identity(),
        make_data_set(rows_of(20), {.shuffle_buffer = 5}).identity(),
        make_data_set(rows_of(20), {}, longer).identity()}) {
    EXPECT_NE(other.fingerprint, base.fingerprint);
  }
}

TEST(DataSet, ReportAddsUp) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", numbered_rows(0, 10) + "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n");
  const DataSet set = make_data_set({{file}});
  const PreparationReport& report = set.report();
  EXPECT_EQ(report.samples, 10);
  EXPECT_EQ(report.tokens, 40);
  EXPECT_EQ(report.trained_tokens, 30);
  EXPECT_EQ(report.fit.without_targets, 1);
  EXPECT_DOUBLE_EQ(set.fill_ratio(0), 40.0 / (10.0 * static_cast<double>(set.rows_per_epoch(0))));
}

TEST(DataSet, NothingToTrainIsAnError) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(make_data_set({{folder.write("a.jsonl", "")}}), InputError);
  const auto file = folder.write("b.jsonl", "{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n");
  const std::string error = error_of<InputError>([&] { make_data_set({{file}}); });
  EXPECT_NE(error.find("1 rows, 0 bad, 0 too long, 1 with nothing to train"), std::string::npos) << error;
  const std::vector<DataSource> tiny_share = {{rows_of(20)[0].path, 0.01}};
  EXPECT_NE(error_of<InputError>([&] { make_data_set(tiny_share); }).find("weights"), std::string::npos);
}

TEST(DataSet, AnEpochMayBeEmptyWhenWeightsAreSmall) {
  const std::vector<DataSource> share = {{rows_of(3)[0].path, 0.4}};
  const DataSet set = make_data_set(share, {.packing = false, .batch = 1});
  std::vector<int64_t> names = samples_of_rows(set, 0, 6);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<int64_t>{0, 0, 1, 1, 2, 2}));
}

TEST(DataSet, ReadsFilesFoldersAndPatterns) {
  const test::TemporaryFolder folder;
  folder.write("b.jsonl", "{\"input_ids\": [3, 3]}\n{broken\n");
  folder.write("a.json", "[{\"input_ids\": [1, 1]}, {\"input_ids\": [2, 2], \"labels\": [-100, -100]}]");
  PreparationOptions preparation{.fit = {.sequence_length = 10}};
  preparation.rows.bad_rows = BadRows::Skip;
  DataSetOptions options = options_with(2, 0, false);
  options.packing = false;
  const std::string path = folder.path().string();
  const DataSet set = make_data_set({{path}, {path + "/b*"}}, options, preparation);
  EXPECT_EQ(samples_of_rows(set, 0, 1), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(set.report().rows, 6);
  EXPECT_EQ(set.report().bad_rows, 2);
  EXPECT_EQ(set.report().fit.without_targets, 1);
  EXPECT_EQ(set.report().samples, 3);
}

/// Writes text rows of about `row_bytes` up to `bytes`.
void write_text_rows(const std::filesystem::path& file, int64_t bytes, size_t row_bytes) {
  FileWriter writer(file);
  const std::string words(row_bytes, 'w');
  for (int64_t row = 0; row * static_cast<int64_t>(row_bytes) < bytes; ++row) {
    writer.write(text("{\"text\": \"", row, " ", words, "\"}\n"));
  }
}

TEST(DataSet, MemoryDoesNotGrowWithTheFile) {
  const bool long_form = std::getenv("ASTERISM_LONG") != nullptr;
  const int64_t bytes = (long_form ? 1'000 : 200) * int64_t{1'000'000};
  const test::TemporaryFolder folder;
  write_text_rows(folder / "a.jsonl", bytes, 2000);
  PreparationOptions preparation{.fit = {.sequence_length = 1024}, .workers = 2};
  preparation.rows.tokenize = [](std::string_view text, std::span<const ByteRange>, std::vector<int64_t>& ids,
                                 std::vector<size_t>& ends) {
    ids.assign(text.size() / 100, 1);
    ends.assign(ids.size(), text.size());
  };
  const uint64_t before = resident_bytes();
  uint64_t most = 0;
  const auto watch = [&] { most = std::max(most, resident_bytes()); };
  const std::vector<DataSource> sources = {{folder / "a.jsonl"}};
  const DataSet set(prepare_data(sources, preparation, {folder / "cache", ""}, [&](int64_t) { watch(); }),
                    preparation.rows, preparation.fit, {.batch = 64});
  StepReader reader(set, {.workers = 2}, {});
  while (reader.position().row < set.rows_per_epoch(0) / (long_form ? 1 : 4)) {
    reader.next();
    watch();
  }
  EXPECT_LT(most - before, uint64_t{60} << 20) << "of a file of " << bytes << " bytes";
}

}  // namespace
}  // namespace asterism::data
