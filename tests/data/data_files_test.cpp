#include "asterism/data/data_files.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using Strings = std::vector<std::string>;

/// A folder whose files' names are all that matters.
class DataFiles : public ::testing::Test {
 protected:
  void add(const std::string& name) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    folder_.write(name, "");
  }
  Strings find(const std::string& source) const {
    Strings names;
    for (const auto& file : data_files(folder_.path().string() + source)) {
      names.push_back(std::filesystem::relative(file, folder_.path()).string());
    }
    return names;
  }

  test::TemporaryFolder folder_;
};

TEST_F(DataFiles, FileFolderAndPatternAreExpandedInOrder) {
  for (const char* name : {"c.jsonl", "a.json", "b.jsonl", "README.md", "[x].jsonl", ".hidden.jsonl"}) add(name);
  EXPECT_EQ(find("/c.jsonl"), (Strings{"c.jsonl"}));
  EXPECT_EQ(find(""), (Strings{"[x].jsonl", "a.json", "b.jsonl", "c.jsonl"}));
  EXPECT_EQ(find("/[bc].jsonl"), (Strings{"b.jsonl", "c.jsonl"}));
  EXPECT_EQ(find("/?.json*"), (Strings{"a.json", "b.jsonl", "c.jsonl"}));
  EXPECT_EQ(find("/[x].jsonl"), (Strings{"[x].jsonl"}));  // not the x.jsonl that this pattern would ask for
}

TEST_F(DataFiles, FoldersHoldEveryFormat) {
  const Strings names = {"a.json",     "a.json.gz",   "a.json.zst", "a.jsonl",
                         "a.jsonl.gz", "a.jsonl.zst", "a.ndjson",   "a.parquet"};
  for (const std::string& name : names) add(name);
  for (const char* name : {"a.csv", "a.gz", "a.tar.gz", "a.parquet.gz", "sub/a.jsonl"}) add(name);
  EXPECT_EQ(find(""), names);
}

TEST_F(DataFiles, TwoStarsReachAllFolders) {
  for (const char* name : {"a.jsonl", "x/b.jsonl", "x/y/c.jsonl", "x/y/c.txt", "z/d.jsonl", ".git/e.jsonl"}) add(name);
  EXPECT_EQ(find("/**/*.jsonl"), (Strings{"a.jsonl", "x/b.jsonl", "x/y/c.jsonl", "z/d.jsonl"}));
  EXPECT_EQ(find("/x/**/*.jsonl"), (Strings{"x/b.jsonl", "x/y/c.jsonl"}));
  EXPECT_EQ(find("/**/y/*.jsonl"), (Strings{"x/y/c.jsonl"}));
  EXPECT_EQ(find("/**/**/c.*"), (Strings{"x/y/c.jsonl", "x/y/c.txt"}));
  EXPECT_EQ(find("/*/*.jsonl"), (Strings{"x/b.jsonl", "z/d.jsonl"}));
}

TEST_F(DataFiles, LinksInCirclesEnd) {
  add("x/a.jsonl");
  std::filesystem::create_directory_symlink(folder_.path(), folder_ / "x/up");
  EXPECT_EQ(find("/**/*.jsonl"), (Strings{"x/a.jsonl"}));
}

TEST_F(DataFiles, NothingFoundIsAnError) {
  add("sub/README.md");
  for (const char* source : {"", "/sub", "/*.jsonl", "/a.jsonl", "/missing/*.jsonl", "/missing/**/*.jsonl", "/su?"}) {
    const std::string message = testing::error_of<InputError>([&] { find(source); });
    EXPECT_NE(message.find(folder_.path().string()), std::string::npos) << source << ": " << message;
  }
}

}  // namespace
}  // namespace asterism::data
