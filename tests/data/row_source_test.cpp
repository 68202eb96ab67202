#include "asterism/data/row_source.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/data/compress.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using Strings = std::vector<std::string>;

Strings read_all(const std::filesystem::path& file) {
  Strings rows;
  const auto source = open_rows(file);
  while (const auto row = source->next()) rows.emplace_back(row->text);
  return rows;
}

TEST(RowSource, FormatFollowsTheContent) {
  const test::TemporaryFolder folder;
  const std::string lines = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n", list = "[{\"text\": \"a\"},\n{\"text\": \"b\"}]";
  const std::tuple<const char*, std::string, const char*> cases[] = {
      {"a.jsonl", lines, "JSON Lines"},
      {"a.ndjson", lines, "JSON Lines"},
      {"a.json", lines, "JSON Lines"},
      {"a.json", list, "a JSON list"},
      {"a.jsonl", list, "a JSON list"},
      {"a.jsonl.gz", gzipped(lines), "JSON Lines (gzip)"},
      {"a.jsonl", gzipped(lines), "JSON Lines (gzip)"},
      {"a.json.gz", gzipped(list), "a JSON list (gzip)"},
      {"a.jsonl.zst", zstd_frame(lines), "JSON Lines (Zstandard)"},
      {"a.json.zst", zstd_frame(list), "a JSON list (Zstandard)"},
  };
  for (const auto& [name, content, format] : cases) {
    const auto file = folder.write(name, content);
    const auto source = open_rows(file);
    EXPECT_EQ(source->format(), format) << name;
    EXPECT_EQ(source->seekable(), content == lines || content == list);
    EXPECT_EQ(source->next()->origin,
              file.string() + (std::string(format).find("list") == std::string::npos ? ":1" : ":1 (row 1)"));
    EXPECT_EQ(read_all(file), (Strings{"{\"text\": \"a\"}", "{\"text\": \"b\"}"}));
  }
}

TEST(RowSource, NamesThatPromiseMoreAreRefused) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.jsonl.gz", "a.json.zst", "a.parquet"}) {
    for (const char* content : {"", "{\"text\": \"a\"}\n"}) {
      const std::string message = testing::error_of<InputError>([&] { open_rows(folder.write(name, content)); });
      EXPECT_NE(message.find(name), std::string::npos) << message;
    }
  }
  EXPECT_THROW(open_rows(folder.write("a.csv", "a,b\n")), InputError);
  EXPECT_THROW(open_rows(folder / "missing.jsonl"), InputError);
}

TEST(RowSource, AnEmptyFileHasNoRows) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.jsonl", "a.json"}) EXPECT_TRUE(read_all(folder.write(name, "")).empty());
  for (const char* text : {"", "\n"}) EXPECT_TRUE(read_all(folder.write("a.jsonl.gz", gzipped(text))).empty());
}

TEST(RowSource, RowsInFrontOfTheDamageComeFirst) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "{\"text\": \"" + std::to_string(i * 7919 % 10007) + "\"}\n";
  for (const bool gzip : {true, false}) {
    const std::string bytes = gzip ? gzipped(text) : zstd_frame(text);
    const auto file = folder.write(gzip ? "a.jsonl.gz" : "a.jsonl.zst", bytes.substr(0, bytes.size() - 10));
    const auto source = open_rows(file);
    size_t rows = 0;
    const std::string message = testing::error_of<InputError>([&] {
      while (source->next()) ++rows;
    });
    EXPECT_GT(rows, 1000u);
    EXPECT_NE(message.find(file.filename().string()), std::string::npos) << message;
  }
}

TEST(RowSource, OrderedSourcesSayThatTheyCannotSeek) {
  const test::TemporaryFolder folder;
  const auto source = open_rows(folder.write("a.jsonl.gz", gzipped("{}\n")));
  EXPECT_THROW(source->at(0, 1), RunError);
}

TEST(RowSource, AFileThatBecameShorterIsAnError) {
  const test::TemporaryFolder folder;
  const auto file = folder.write("a.jsonl", "{1}\n" + std::string(200000, ' ') + "\n{2}\n");
  const auto source = open_rows(file);
  source->next();
  const RawRow row = *source->next();
  const auto [offset, number] = std::pair(row.offset, row.number);
  EXPECT_EQ(source->at(offset, number).origin, file.string() + ":3");
  const auto other = open_rows(file);
  std::filesystem::resize_file(file, 100);
  EXPECT_THROW(other->at(offset, number), RunError);
}

}  // namespace
}  // namespace asterism::data
