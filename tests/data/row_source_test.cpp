#include "asterism/data/row_source.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

struct Read {
  std::vector<std::string> texts, places;
  bool cut_off = false;
};

Read read_all(const std::filesystem::path& file) {
  Read result;
  RowSource source(file);
  while (const auto row = source.next()) {
    result.texts.emplace_back(row->text);
    result.places.push_back(row->origin.substr(row->origin.rfind('/') + 1));
    result.cut_off = row->cut_off;
  }
  return result;
}

using Strings = std::vector<std::string>;

TEST(RowSource, LinesSurviveByteOrderMarkCrLfAndEmptyLines) {
  const test::TemporaryFolder folder;
  const Read read = read_all(folder.write("a.jsonl", "\xEF\xBB\xBF{1}\r\n\r\n  \n{2}\n\n {3} \r\n"));
  EXPECT_EQ(read.texts, (Strings{"{1}", "{2}", "{3}"}));
  EXPECT_EQ(read.places, (Strings{"a.jsonl:1", "a.jsonl:4", "a.jsonl:6"}));
  EXPECT_FALSE(read.cut_off);
}

TEST(RowSource, LastLineWithoutNewlineIsARow) {
  const test::TemporaryFolder folder;
  const Read read = read_all(folder.write("a.jsonl", "{1}\n{2"));
  EXPECT_EQ(read.texts, (Strings{"{1}", "{2"}));
  EXPECT_TRUE(read.cut_off);
  EXPECT_TRUE(read_all(folder.write("b.jsonl", "")).texts.empty());
}

TEST(RowSource, ListsAreSplitAtTheirOwnCommas) {
  const test::TemporaryFolder folder;
  const Read read =
      read_all(folder.write("a.json", "\xEF\xBB\xBF\n[\n {\"a\": \"],[\\\"\\\\\", \"b\": [1, {}]},\n\n {} , 3]\n"));
  EXPECT_EQ(read.texts, (Strings{"{\"a\": \"],[\\\"\\\\\", \"b\": [1, {}]}", "{}", "3"}));
  EXPECT_EQ(read.places, (Strings{"a.json:3 (row 1)", "a.json:5 (row 2)", "a.json:5 (row 3)"}));
  EXPECT_TRUE(read_all(folder.write("b.json", " [ ] ")).texts.empty());
}

TEST(RowSource, BrokenListsKeepTheirBadRows) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(read_all(folder.write("a.json", "[1,]")).texts, (Strings{"1", ""}));
  EXPECT_EQ(read_all(folder.write("b.json", "[,1]")).texts, (Strings{"", "1"}));
  const Read cut = read_all(folder.write("c.json", "[1, {\"a\": [2"));
  EXPECT_EQ(cut.texts, (Strings{"1", "{\"a\": [2"}));
  EXPECT_TRUE(cut.cut_off);
  EXPECT_TRUE(read_all(folder.write("d.json", "[1,")).cut_off);
  EXPECT_THROW(read_all(folder.write("e.json", "[1] [2]")), InputError);
}

TEST(RowSource, OtherFormatsAreNamed) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.jsonl.gz", "a.jsonl.zst", "a.parquet", "a.csv", "b.json"}) {
    EXPECT_THROW(RowSource source(folder.write(name, "{}")), InputError) << name;
  }
  EXPECT_THROW(RowSource source(folder.path() / "missing.jsonl"), InputError);
}

Strings names(const std::vector<std::filesystem::path>& files) {
  Strings result;
  for (const auto& file : files) result.push_back(file.filename().string());
  return result;
}

TEST(DataFiles, FileFolderAndPatternAreExpandedInOrder) {
  const test::TemporaryFolder folder;
  for (const char* name : {"c.jsonl", "a.json", "b.jsonl", "README.md", "[x].jsonl"}) folder.write(name, "");
  const std::string path = folder.path().string();
  EXPECT_EQ(names(data_files(path + "/c.jsonl")), (Strings{"c.jsonl"}));
  EXPECT_EQ(names(data_files(path)), (Strings{"[x].jsonl", "a.json", "b.jsonl", "c.jsonl"}));
  EXPECT_EQ(names(data_files(path + "/[bc].jsonl")), (Strings{"b.jsonl", "c.jsonl"}));
  EXPECT_EQ(names(data_files(path + "/[x].jsonl")), (Strings{"[x].jsonl"}));
}

TEST(DataFiles, NothingFoundIsAnError) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(data_files(folder.path().string()), InputError);
  EXPECT_THROW(data_files(folder.path().string() + "/*.jsonl"), InputError);
  EXPECT_THROW(data_files(folder.path().string() + "/a.jsonl"), InputError);
}

TEST(DataFiles, FolderDoesNotHideUnreadableFormats) {
  const test::TemporaryFolder folder;
  folder.write("a.jsonl", "");
  folder.write("b.parquet", "");
  EXPECT_EQ(data_files(folder.path().string()).size(), 2u);
}

}  // namespace
}  // namespace asterism::data
