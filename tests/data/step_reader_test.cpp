#include "asterism/data/step_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "asterism/core/error.h"
#include "tests/data/compress.h"
#include "tests/data/numbered_rows.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

constexpr int64_t kBatch = 8;
constexpr int64_t kSteps = 24;  // into the third epoch

/// Ids, weights and lengths of the rows of a step, as text that can be compared.
std::string described(const std::vector<PackedRow>& rows) {
  std::string words;
  for (const PackedRow& row : rows) {
    words += text("row ", row.index, ":");
    for (size_t t = 0; t < row.ids.size(); ++t) words += text(" ", row.ids[t], row.weights[t] > 0 ? "+" : "-");
    for (const int64_t length : row.lengths) words += text(" |", length);
    words += "\n";
  }
  return words;
}

/// Data of every kind: lines, a list and two streams, with weights of all sorts.
class StepReading : public ::testing::Test {
 protected:
  StepReading() {
    folder_.write("a.jsonl", numbered_rows(0, 60));
    std::string list = numbered_rows(60, 20);
    std::replace(list.begin(), list.end() - 1, '\n', ',');
    folder_.write("b.json", "[" + list + "]");
    folder_.write("c.jsonl.gz", gzipped(numbered_rows(80, 40)));
    folder_.write("d.jsonl.zst", zstd_frame(numbered_rows(120, 30)));
  }

  std::vector<DataSource> mixture() const {
    return {{folder_ / "a.jsonl"}, {folder_ / "b.json", 2.0}, {folder_ / "c.jsonl.gz"}, {folder_ / "d.jsonl.zst", 0.5}};
  }
  DataSet mixed(bool shuffle = true) const {
    return make_data_set(mixture(), {.shuffle = shuffle, .shuffle_buffer = 7, .seed = 5, .batch = kBatch});
  }

  test::TemporaryFolder folder_;
};

/// The steps [first, kSteps) as all ranks together read them, micro-batches in turn.
std::vector<std::string> read_steps(const DataSet& set, int ranks, int64_t workers, StreamPosition start, int64_t first,
                                    int64_t rows_at_once = 1) {
  std::vector<std::vector<PackedRow>> steps(kSteps);
  for (int rank = 0; rank < ranks; ++rank) {
    const ReaderOptions options{.rank = rank, .ranks = ranks, .rows_at_once = rows_at_once, .workers = workers};
    StepReader reader(set, options, start);
    for (int64_t step = first; step < kSteps; ++step) {
      auto& all = steps[static_cast<size_t>(step)];
      all.resize(static_cast<size_t>(set.options().batch));
      const auto rows = reader.next();
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto block = static_cast<int64_t>(i) / rows_at_once, inside = static_cast<int64_t>(i) % rows_at_once;
        all.at(static_cast<size_t>((block * ranks + rank) * rows_at_once + inside)) = rows[i];
      }
    }
  }
  std::vector<std::string> texts;
  for (const auto& rows : steps) texts.push_back(described(rows));
  return texts;
}

TEST_F(StepReading, EveryRankAndWorkerReadsTheSameGlobalOrder) {
  for (const bool shuffle : {true, false}) {
    const DataSet set = mixed(shuffle);
    const auto expected = read_steps(set, 1, 0, {}, 0);
    for (const int ranks : {1, 2, 3, 8, 11}) {
      for (const int64_t workers : {0, 1, 2, 4}) {
        EXPECT_EQ(read_steps(set, ranks, workers, {}, 0), expected) << ranks << " ranks, " << workers << " workers";
        EXPECT_EQ(read_steps(set, ranks, workers, {}, 0, /*rows_at_once=*/2), expected) << ranks << " ranks";
      }
    }
  }
}

TEST_F(StepReading, EveryEpochUsesEveryRowAsItsWeightSays) {
  const DataSet set = mixed();
  StepReader reader(set, {.workers = 2}, {});
  std::map<int64_t, std::map<int64_t, int>> used;  // by epoch, by row
  StreamPosition at;
  while (at.epoch < 3) {
    const auto rows = reader.next();
    for (int64_t i = 0; i < kBatch; ++i) {
      for (const int64_t name : names_in(rows[static_cast<size_t>(i)])) ++used[set.advance(at, i + 1).epoch][name];
    }
    at = reader.position();
  }
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const auto& counts = used[epoch];
    for (int64_t name = 0; name < 120; ++name) {
      EXPECT_EQ(counts.contains(name) ? counts.at(name) : 0, name >= 60 && name < 80 ? 2 : 1) << epoch << " " << name;
    }
    const auto halves = std::distance(counts.lower_bound(120), counts.end());
    EXPECT_EQ(halves, 15);
  }
  for (int64_t name = 120; name < 150; ++name) EXPECT_NE(used[0].contains(name), used[1].contains(name));
}

TEST_F(StepReading, EveryPositionResumes) {
  const DataSet set = mixed(), again = mixed();
  const auto expected = read_steps(set, 1, 0, {}, 0);
  StepReader reader(set, {.workers = 3}, {});
  for (int64_t step = 0; step + 1 < kSteps; ++step) {
    reader.next();
    // What a checkpoint keeps, while workers are ahead.
    const std::string saved = position_to_json(reader.position(), set.identity()).dump();
    const StreamPosition start =
        position_from_json(nlohmann::ordered_json::parse(saved), again.identity(), "checkpoint");
    EXPECT_EQ(start, set.position_of_step(step + 1));
    const int ranks = step % 3 == 0 ? 1 : step % 3 == 1 ? 3 : 8;
    const auto steps = read_steps(again, ranks, step % 2 == 0 ? 2 : 0, start, step + 1);
    for (int64_t later = step + 1; later < kSteps; ++later) {
      ASSERT_EQ(steps[static_cast<size_t>(later)], expected[static_cast<size_t>(later)]) << "from step " << step + 1;
    }
  }
}

TEST_F(StepReading, ARankReadsNothingButItsRows) {
  // The tokenizer sees what is read: all ranks together each row of the epoch once, not once per rank.
  std::string lines;
  for (int i = 0; i < 64; ++i) lines += text("{\"text\": \"row ", i, "\"}\n");
  const auto file = folder_.write("text.jsonl", lines);
  PreparationOptions options{.fit = {.sequence_length = 10}};
  std::atomic<int64_t> read = 0;
  options.rows.tokenize = [&](std::string_view text, std::span<const ByteRange>, std::vector<int64_t>& ids,
                              std::vector<size_t>& ends) {
    ++read;
    test::tokenize_bytes(text, {}, ids, ends);
  };
  const DataSet set = make_data_set({{file}}, {.packing = false, .batch = 8}, options);
  EXPECT_EQ(read, 64);
  const int64_t rows = set.rows_per_epoch(0);
  ASSERT_EQ(rows, 64);
  for (int rank = 0; rank < 4; ++rank) {
    read = 0;
    StepReader reader(set, {.rank = rank, .ranks = 4}, {});
    for (int64_t step = 0; step < rows / 8; ++step) reader.next();
    EXPECT_EQ(read, 16) << rank;
  }
}

TEST_F(StepReading, MoreRanksThanRowsLeaveSomeWithoutAny) {
  const DataSet set = make_data_set({{folder_ / "a.jsonl"}}, {.batch = 2});
  size_t rows = 0;
  for (int rank = 0; rank < 5; ++rank) {
    StepReader reader(set, {.rank = rank, .ranks = 5, .workers = 1}, {});
    rows += reader.next().size() + reader.next().size();
    EXPECT_EQ(reader.position(), set.position_of_step(2));
  }
  EXPECT_EQ(rows, 4u);
}

TEST_F(StepReading, AnErrorOfAWorkerReachesTheCaller) {
  for (const int64_t workers : {0, 3}) {
    const auto file = folder_.write("e.jsonl", numbered_rows(0, 100));
    const DataSet set = make_data_set({{file}}, {.shuffle = false, .batch = 2});
    StepReader reader(set, {.workers = workers}, {});
    reader.next();
    fs::last_write_time(file, fs::file_time_type::clock::now() + std::chrono::seconds(10));
    const std::string error = error_of<RunError>([&] {
      for (int i = 0; i < 20; ++i) reader.next();
    });
    EXPECT_NE(error.find("e.jsonl: the file was changed"), std::string::npos) << error;
  }
}

TEST_F(StepReading, ImpossibleStartsAreRefused) {
  const DataSet set = make_data_set({{folder_ / "a.jsonl"}}, {.batch = 2});
  EXPECT_THROW(StepReader(set, {}, {0, set.rows_per_epoch(0) + 1}), InputError);
  EXPECT_THROW(StepReader(set, {.rank = 2, .ranks = 2}, {}), RunError);
  EXPECT_THROW(StepReader(set, {.rows_at_once = 0}, {}), RunError);
}

TEST_F(StepReading, EvaluationReadsEveryRowOnceInTheOrderOfTheFiles) {
  const DataSet set = mixed();
  for (const int64_t workers : {0, 2}) {
    EvaluationReader reader(set, workers);
    std::vector<int64_t> names;
    int64_t next = 0;
    for (auto rows = reader.next(); !rows.empty(); rows = reader.next()) {
      EXPECT_LE(rows.size(), static_cast<size_t>(kBatch));
      for (const PackedRow& row : rows) EXPECT_EQ(row.index, next++);
      const auto more = names_in(rows);
      names.insert(names.end(), more.begin(), more.end());
    }
    EXPECT_TRUE(reader.next().empty());
    EXPECT_EQ(names.front(), 0);
    EXPECT_GE(names.back(), 140);
    std::sort(names.begin(), names.end());
    ASSERT_EQ(names.size(), 150u);
    for (int64_t i = 0; i < 150; ++i) EXPECT_EQ(names[static_cast<size_t>(i)], i);
  }
}

TEST_F(StepReading, AnEvaluationSetMayBeSmallerThanABatch) {
  const DataSet set =
      make_data_set({{folder_.write("three.jsonl", numbered_rows(0, 3))}}, {.packing = false, .batch = 8});
  EvaluationReader reader(set, 2);
  EXPECT_EQ(reader.next().size(), 3u);
  EXPECT_TRUE(reader.next().empty());
}

}  // namespace
}  // namespace asterism::data
