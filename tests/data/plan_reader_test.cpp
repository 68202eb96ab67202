#include "asterism/data/plan_reader.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/data/compress.h"
#include "tests/data/numbered_rows.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using testing::error_of;

class PlanReading : public ::testing::Test {
 protected:
  PlanReading() {
    folder_.write("lines.jsonl", numbered_rows(0, 40));
    folder_.write("stream.jsonl.gz", gzipped(numbered_rows(40, 60)));
    folder_.write("z.jsonl.zst", zstd_frame(numbered_rows(100, 50)));
  }

  DataSet set_of(const std::vector<DataSource>& sources) const {
    return make_data_set(sources, {.shuffle_buffer = 5, .seed = 2});
  }
  std::vector<DataSource> mixture() const {
    return {{folder_ / "lines.jsonl"}, {folder_ / "stream.jsonl.gz", 2.0}, {folder_ / "z.jsonl.zst", 0.5}};
  }

  test::TemporaryFolder folder_;
};

/// The documents of a row of the plan by their names: the first of the index has the name `first`.
std::vector<int64_t> expected_names(const EpochPlan& plan, int64_t row, int64_t first) {
  std::vector<int64_t> names;
  for (const uint32_t position : plan.rows.row(row)) names.push_back(first + plan.order.samples[position]);
  return names;
}

TEST_F(PlanReading, RowsOfStreamsAndOthersComeInAnyOrder) {
  const DataSet set = set_of(mixture());
  const auto plan = set.plan(0);
  const PlanReader reader(set.samples(), plan, [](int64_t) { return true; });
  const int64_t rows = plan->rows.rows();
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = rows % 7 == 0 ? (i * 5) % rows : (i * 7) % rows;
    const PackedRow packed = reader.read(row);
    EXPECT_EQ(packed.index, row);
    EXPECT_EQ(names_in(packed), expected_names(*plan, row, 0));
  }
}

TEST_F(PlanReading, OnlyRowsThatAreWantedAreKept) {
  const DataSet set = set_of({{folder_ / "stream.jsonl.gz"}});
  const auto plan = set.plan(0);
  const PlanReader reader(set.samples(), plan, [](int64_t row) { return row % 3 == 1; });
  for (int64_t row = 1; row < plan->rows.rows(); row += 3) {
    EXPECT_EQ(names_in(reader.read(row)), expected_names(*plan, row, 40));
  }
  EXPECT_THROW(reader.read(0), std::logic_error);
}

TEST_F(PlanReading, AStreamThatChangesIsAnError) {
  const DataSet set = set_of({{folder_ / "stream.jsonl.gz"}});
  folder_.write("stream.jsonl.gz", gzipped(numbered_rows(40, 50)));
  const PlanReader reader(set.samples(), set.plan(0), [](int64_t) { return true; });
  const std::string error = error_of<RunError>([&] { reader.read(0); });
  EXPECT_NE(error.find("stream.jsonl.gz: the file was changed"), std::string::npos) << error;
}

TEST_F(PlanReading, ManyStreamsOfOneSourceAreReadOneAfterTheOther) {
  for (int i = 0; i < 30; ++i) folder_.write(text("many", 100 + i, ".jsonl.gz"), gzipped(numbered_rows(i * 3, 3)));
  const DataSet set = set_of({{folder_.path().string() + "/many*.gz", 1.0}});
  const auto plan = set.evaluation_plan();
  const PlanReader reader(set.samples(), plan, [](int64_t) { return true; });
  std::vector<int64_t> names;
  for (int64_t row = 0; row < plan->rows.rows(); ++row) {
    for (const int64_t name : names_in(reader.read(row))) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  for (int64_t i = 0; i < 90; ++i) EXPECT_EQ(names.at(static_cast<size_t>(i)), i);
}

}  // namespace
}  // namespace asterism::data
