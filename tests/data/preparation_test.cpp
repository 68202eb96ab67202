#include "asterism/data/preparation.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/data/compress.h"
#include "tests/data/numbered_rows.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using testing::error_of;

PreparationOptions byte_options(int64_t workers = 0) {
  PreparationOptions options;
  options.rows.tokenize = test::tokenize_bytes;
  options.rows.vocab_size = 256;
  options.workers = workers;
  return options;
}

PreparationOptions skipping(int64_t workers = 0) {
  PreparationOptions options = byte_options(workers);
  options.rows.bad_rows = BadRows::Skip;
  return options;
}

PreparationReport prepare_files(const std::vector<std::filesystem::path>& paths, const PreparationOptions& options,
                                const PreparationHooks& hooks = {}) {
  std::vector<DataSource> sources;
  for (const auto& path : paths) sources.push_back({path});
  return prepare(list_files(sources), options, hooks);
}

TEST(Prepare, EntriesComeInOrderWhateverTheWorkers) {
  const test::TemporaryFolder folder;
  const auto lines = folder.write("a.jsonl", numbered_rows(0, 3000) + "{bad\n" + numbered_rows(3000, 2000));
  const auto stream = folder.write("b.jsonl.gz", gzipped(numbered_rows(5000, 3000)));
  PreparationOptions options = skipping();
  options.rows.vocab_size = 0;
  std::vector<std::string> outcomes;
  for (const int64_t workers : {0, 1, 4}) {
    options.workers = workers;
    std::string outcome;
    PreparationHooks hooks;
    hooks.on_entry = [&](const SampleEntry& entry) {
      outcome += text(entry.place, " ", entry.tokens, " ", entry.trained, " ", entry.check, "\n");
    };
    hooks.on_bad_row = [&](const DataFile&, const RawRow& row, const RowError&) { outcome += row.origin; };
    const auto report = prepare_files({lines, stream}, options, hooks);
    EXPECT_EQ(report.rows, 8001);
    EXPECT_EQ(report.samples, 8000);
    EXPECT_EQ(report.tokens, 8000 * 4);
    EXPECT_EQ(report.trained_tokens, 8000 * 3);
    outcomes.push_back(outcome);
  }
  EXPECT_EQ(outcomes[1], outcomes[0]);
  EXPECT_EQ(outcomes[2], outcomes[0]);
}

TEST(Prepare, TellsPositionsOfRows) {
  const test::TemporaryFolder folder;
  const std::string rows = "{\"text\": \"a\"}\n\n{\"text\": \"bcd\"}\n{\"text\": \"efg\"}\n";
  const auto lines = folder.write("a.jsonl", rows), stream = folder.write("b.jsonl.zst", zstd_frame(rows));
  std::vector<std::pair<uint32_t, uint64_t>> places;
  PreparationHooks hooks;
  hooks.on_entry = [&](const SampleEntry& entry) { places.emplace_back(entry.file(), entry.position()); };
  prepare_files({lines, stream}, byte_options(), hooks);
  EXPECT_EQ(places, (std::vector<std::pair<uint32_t, uint64_t>>{{0, 15}, {0, 31}, {1, 1}, {1, 2}}));
}

TEST(Prepare, BadRowsAreSkippedAndCountedOnRequest) {
  const test::TemporaryFolder folder;
  const auto lines = folder.write("a.jsonl", "{\"text\": \"ok\"}\n{bad\n{\"text\": \"\"}\n{\"text\": \"ok\"}\n{\"te");
  const auto list = folder.write("b.json", "[{\"text\": \"fine\"}, {bad}, {\"text\": \"fine\"}");
  for (const int64_t workers : {0, 2}) {
    EXPECT_THROW(prepare_files({lines}, byte_options(workers)), RowError);
    std::vector<std::string> told;
    PreparationHooks hooks;
    hooks.on_bad_row = [&](const DataFile& file, const RawRow& row, const RowError& error) {
      told.push_back(text(file.path.filename().string(), " ", row.number, " ", error.category()));
    };
    const PreparationReport report = prepare_files({lines, list}, skipping(workers), hooks);
    EXPECT_EQ(report.samples, 4);
    EXPECT_EQ(report.rows, 8);
    EXPECT_EQ(report.bad_rows, 4);
    EXPECT_EQ(report.bad_by_category, (std::map<std::string, int64_t>{{"empty_row", 1}, {"invalid_json", 3}}));
    ASSERT_EQ(report.first_bad.size(), 4u);
    EXPECT_NE(report.first_bad[0].find("a.jsonl:2"), std::string::npos);
    EXPECT_NE(report.first_bad[2].find("written completely"), std::string::npos) << report.first_bad[2];
    EXPECT_EQ(told, (std::vector<std::string>{"a.jsonl 2 invalid_json", "a.jsonl 3 empty_row", "a.jsonl 5 invalid_json",
                                              "b.json 2 invalid_json"}));
  }
}

TEST(Prepare, TheFirstErrorIsReportedWhateverTheWorkers) {
  const test::TemporaryFolder folder;
  const auto first = folder.write("a.jsonl", numbered_rows(0, 100) + "{first\n" + numbered_rows(0, 100));
  const auto second = folder.write("b.jsonl", "{second\n");
  std::string cut = gzipped(numbered_rows(0, 60'000));
  cut.resize(cut.size() - 4);
  const auto damaged = folder.write("c.jsonl.gz", cut);
  for (const int64_t workers : {0, 1, 4}) {
    const std::string error = error_of<InputError>([&] {
      prepare_files({first, second, damaged}, byte_options(workers));
    });
    EXPECT_NE(error.find("a.jsonl:101"), std::string::npos) << error;
  }
}

TEST(Prepare, ForeignIdsAreNeverSkipped) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", "{\"input_ids\": [1]}\n{\"input_ids\": [3, 300]}\n");
  const std::string message = error_of<InputError>([&] { prepare_files({file}, skipping(2)); });
  for (const char* part : {"a.jsonl:2", "300", "256", "tokenizer"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

TEST(Prepare, SamplesThatDoNotFitAreCountedAndLeftOut) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", "{\"text\": \"abc\"}\n{\"text\": \"abcdefgh\"}\n{\"text\": \"a\"}\n");
  PreparationOptions options = byte_options();
  options.fit = {.sequence_length = 5, .overlong = Overlong::Truncate};
  std::vector<size_t> sizes;
  PreparationHooks hooks;
  hooks.on_row = [&](const DataFile&, const RawRow& row, const std::vector<Sample>& samples) {
    EXPECT_EQ(row.text.size(), samples.at(0).ids.size() + 12);
    sizes.push_back(samples.at(0).ids.size());
  };
  const PreparationReport report = prepare_files({file}, options, hooks);
  EXPECT_EQ(sizes, (std::vector<size_t>{3, 8, 1}));  // as they are before any is cut
  EXPECT_EQ(report.samples, 2);
  EXPECT_EQ(report.tokens, 8);
  EXPECT_EQ(report.fit.truncated, 1);
  EXPECT_EQ(report.fit.without_targets, 1);
  options.fit.overlong = Overlong::Error;
  EXPECT_NE(error_of<InputError>([&] { prepare_files({file}, options); }).find("a.jsonl:2"), std::string::npos);
}

TEST(Prepare, AFileThatGrowsMeanwhileIsAnError) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", numbered_rows(0, 20));
  const auto files = list_files({{file}});
  folder.write("a.jsonl", numbered_rows(0, 21));
  EXPECT_THROW(prepare(files, byte_options(), {}), RunError);
}

TEST(Prepare, BundledChatsAreReadable) {
  const auto folder = std::filesystem::path(ASTERISM_SOURCE_DIR) / "recipes" / "quickstart";
  for (const char* name : {"train.jsonl", "held_out.jsonl"}) {
    const PreparationReport report = prepare_files({folder / name}, byte_options());
    EXPECT_GE(report.rows, 40);
    EXPECT_EQ(report.samples, report.rows);
  }
}

TEST(Prepare, ALineOfManyMegabytesIsRead) {
  const test::TemporaryFolder folder;
  const std::string long_text(50u << 20, 'x');
  const auto file = folder.write("a.jsonl", "{\"text\": \"" + long_text + "\"}\n{\"text\": \"y\"}");
  PreparationOptions options;
  size_t longest = 0;
  options.rows.tokenize = [&](std::string_view view, std::span<const ByteRange>, std::vector<int64_t>& ids,
                              std::vector<size_t>& ends) {
    longest = std::max(longest, view.size());
    ids = {1, 2};
    ends = {1, view.size()};
  };
  EXPECT_EQ(prepare_files({file}, options).samples, 2);
  EXPECT_EQ(longest, long_text.size());
}

}  // namespace
}  // namespace asterism::data
