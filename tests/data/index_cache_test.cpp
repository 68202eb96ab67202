#include "asterism/data/index_cache.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "asterism/core/error.h"
#include "tests/data/numbered_rows.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class IndexCache : public ::testing::Test {
 protected:
  IndexCache() {
    folder_.write("a.jsonl", numbered_rows(0, 5000));
    folder_.write("b.jsonl", numbered_rows(5000, 10) + "{bad \xFF\n" + numbered_rows(5010, 10) + "[1]\n");
    options_.rows.bad_rows = BadRows::Skip;
    options_.fit.sequence_length = 10;
  }

  PreparedData prepared(const std::string& settings = "s") {
    return prepare_data({{folder_ / "a.jsonl"}, {folder_ / "b.jsonl"}}, options_, {folder_ / "cache/deep", settings});
  }
  fs::path index_file() const {
    for (const auto& entry : fs::directory_iterator(folder_ / "cache/deep")) {
      if (entry.path().extension() == ".index") return entry.path();
    }
    throw std::runtime_error("no index");
  }
  size_t files_in_cache() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_ / "cache/deep"), {}));
  }

  test::TemporaryFolder folder_;
  PreparationOptions options_;
};

void expect_same(const DataIndex& a, const DataIndex& b) {
  ASSERT_EQ(a.entries().size(), b.entries().size());
  EXPECT_EQ(std::memcmp(a.entries().data(), b.entries().data(), a.entries().size_bytes()), 0);
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_EQ(a.report().rows, b.report().rows);
  EXPECT_EQ(a.report().first_bad, b.report().first_bad);
  EXPECT_EQ(a.report().bad_by_category, b.report().bad_by_category);
  EXPECT_EQ(a.report().tokens, b.report().tokens);
  EXPECT_EQ(a.report().trained_tokens, b.report().trained_tokens);
  EXPECT_EQ(a.report().fit.kept, b.report().fit.kept);
}

TEST_F(IndexCache, TheSecondStartReadsNoRow) {
  const PreparedData first = prepared();
  EXPECT_FALSE(first.from_cache);
  EXPECT_EQ(first.cache_note, "");
  const PreparedData second = prepared();
  EXPECT_TRUE(second.from_cache);
  expect_same(*first.index, *second.index);
  EXPECT_EQ(second.index->report().samples, 5020);
  EXPECT_EQ(second.index->report().bad_rows, 2);
  const PreparedData in_memory = prepare_data({{folder_ / "a.jsonl"}, {folder_ / "b.jsonl"}}, options_, {});
  EXPECT_FALSE(in_memory.from_cache);
  expect_same(*first.index, *in_memory.index);
  EXPECT_EQ(files_in_cache(), 2u);  // index and rejected rows; nothing half written
}

TEST_F(IndexCache, HoldsTheRejectedRows) {
  prepared();
  std::ifstream lines(prepared().rejected_rows);
  std::vector<nlohmann::json> rejected;
  for (std::string line; std::getline(lines, line);) rejected.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(rejected.size(), 2u);
  EXPECT_EQ(rejected[0].at("file"), (folder_ / "b.jsonl").string());
  EXPECT_EQ(rejected[0].at("line"), 11);
  EXPECT_EQ(rejected[0].at("category"), "invalid_utf8");
  EXPECT_FALSE(rejected[0].at("message").get<std::string>().empty());
  EXPECT_EQ(rejected[0].at("row"), "{bad ?");
  EXPECT_EQ(rejected[1].at("line"), 22);
  EXPECT_EQ(rejected[1].at("category"), "not_an_object");
}

TEST_F(IndexCache, AChangedFileMakesItStale) {
  prepared();
  folder_.write("b.jsonl", numbered_rows(5000, 30));
  const PreparedData changed = prepared();
  EXPECT_FALSE(changed.from_cache);
  EXPECT_NE(changed.cache_note.find("b.jsonl was changed"), std::string::npos) << changed.cache_note;
  EXPECT_EQ(changed.index->report().samples, 5030);
  EXPECT_EQ(files_in_cache(), 1u);  // the old index is replaced, and nothing was rejected now
  EXPECT_TRUE(prepared().from_cache);
  // The same size and content, written again: nobody can tell, so it is read again.
  fs::last_write_time(folder_ / "a.jsonl", fs::file_time_type::clock::now() + std::chrono::seconds(5));
  EXPECT_NE(prepared().cache_note.find("a.jsonl was changed"), std::string::npos);
}

TEST_F(IndexCache, OtherSettingsHaveAnotherIndex) {
  prepared("one");
  EXPECT_FALSE(prepared("two").from_cache);
  EXPECT_TRUE(prepared("one").from_cache);
  EXPECT_TRUE(prepared("two").from_cache);
}

TEST_F(IndexCache, ADamagedIndexIsMadeAnew) {
  const PreparedData good = prepared();
  const std::string content = read_text(index_file());
  std::vector<std::string> damages;
  for (size_t size : {size_t{0}, size_t{31}, content.size() / 2, content.size() - 1}) {
    damages.push_back(content.substr(0, size));
  }
  for (size_t place : {size_t{3}, size_t{24 * 4096}, content.size() - 100, content.size() - 30, content.size() - 20,
                       content.size() - 10, content.size() - 3}) {
    damages.push_back(content);
    damages.back()[place] = static_cast<char>(damages.back()[place] ^ 0x10);
  }
  damages.push_back(content + content);
  for (const std::string& damage : damages) {
    write_text_atomically(index_file(), damage);  // the first index is mapped, so not in place
    const PreparedData again = prepared();
    EXPECT_FALSE(again.from_cache);
    EXPECT_NE(again.cache_note.find("damaged"), std::string::npos) << again.cache_note;
    expect_same(*good.index, *again.index);
    EXPECT_TRUE(prepared().from_cache);
  }
}

TEST_F(IndexCache, RejectedRowsThatAreGoneAreMadeAnew) {
  fs::remove(prepared().rejected_rows);
  const PreparedData again = prepared();
  EXPECT_FALSE(again.from_cache);
  EXPECT_NE(again.cache_note.find("rejected rows"), std::string::npos);
  EXPECT_TRUE(fs::exists(again.rejected_rows));
}

TEST_F(IndexCache, AFailedPreparationLeavesNothing) {
  options_.rows.bad_rows = BadRows::Error;
  EXPECT_THROW(prepared(), InputError);
  EXPECT_FALSE(fs::exists(folder_ / "cache"));
  folder_.write("cache", "in the way");
  EXPECT_NE(error_of<InputError>([&] { prepared(); }).find("cache/deep"), std::string::npos);
}

}  // namespace
}  // namespace asterism::data
