#include "asterism/data/data_index.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/data/compress.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using testing::error_of;

Sample sample(std::vector<int64_t> ids, std::vector<float> weights) {
  return {std::move(ids), std::move(weights), "f:1"};
}

TEST(SampleEntry, TellsFileAndPosition) {
  const uint64_t far = (uint64_t{1} << 48) - 1;
  const SampleEntry entry = make_entry(sample({5, 6, 7}, {1, 1, 0}), 65535, far, 2);
  EXPECT_EQ(entry.file(), 65535u);
  EXPECT_EQ(entry.position(), far);
  EXPECT_EQ(entry.tokens, 3u);
  EXPECT_EQ(entry.trained, 1u);
  EXPECT_EQ(entry.part, 2u);
}

TEST(SampleEntry, ChecksIdsAndWeights) {
  const uint32_t check = make_entry(sample({5, 6, 7}, {1, 1, 0}), 0, 0, 0).check;
  EXPECT_EQ(check, make_entry(sample({5, 6, 7}, {1, 1, 0}), 3, 9, 1).check);
  EXPECT_NE(check, make_entry(sample({6, 5, 7}, {1, 1, 0}), 0, 0, 0).check);
  EXPECT_NE(check, make_entry(sample({5, 6, 7}, {1, 0.5, 0}), 0, 0, 0).check);
}

TEST(ListFiles, HasThemInTheOrderOfSourcesAndNames) {
  const test::TemporaryFolder folder;
  folder.write("b.jsonl", "{}\n");
  folder.write("a.jsonl.gz", gzipped("{}\n"));
  const std::string path = folder.path();
  const auto files = list_files({{path + "/b.jsonl"}, {path}});
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].path.filename(), "b.jsonl");
  EXPECT_EQ(files[1].path.filename(), "a.jsonl.gz");
  EXPECT_EQ(files[0].source, 0);
  EXPECT_EQ(files[1].source, 1);
  EXPECT_TRUE(files[0].seekable);
  EXPECT_FALSE(files[1].seekable);
  EXPECT_EQ(files[0].stamp.bytes, 3u);
  EXPECT_THROW(list_files({{path + "/absent.jsonl"}}), InputError);
}

TEST(CheckUnchanged, SaysWhatHappenedToTheFile) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("a.jsonl", "{}\n");
  const DataFile file = list_files({{path}}).at(0);
  check_unchanged(file);
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() + std::chrono::seconds(3));
  EXPECT_NE(error_of<RunError>([&] { check_unchanged(file); }).find("the same 3 bytes"), std::string::npos);
  folder.write("a.jsonl", "{}\n{}\n");
  EXPECT_NE(error_of<RunError>([&] { check_unchanged(file); }).find("had 3 bytes and has 6"), std::string::npos);
  std::filesystem::remove(path);
  EXPECT_NE(error_of<RunError>([&] { check_unchanged(file); }).find("a.jsonl"), std::string::npos);
}

/// Entries of one token each: so many of each file.
DataIndex index_of(const std::vector<DataFile>& files, const std::vector<int>& counts) {
  std::vector<SampleEntry> entries;
  for (uint32_t file = 0; file < files.size(); ++file) {
    for (int i = 0; i < counts[file]; ++i) entries.push_back(make_entry(sample({i, i}, {1, 1}), file, 0, 0));
  }
  return DataIndex(files, {}, std::move(entries));
}

TEST(DataIndex, ExtentsAreFilesOfOneSourceAndKind) {
  const std::vector<DataFile> files = {
      {"a", 0, true, {}}, {"b", 0, true, {}}, {"c", 0, false, {}}, {"d", 1, false, {}}};
  const std::vector<double> weights = {2.0, 0.5};
  const auto extents = index_of(files, {3, 2, 4, 1}).extents(weights);
  ASSERT_EQ(extents.size(), 3u);
  EXPECT_EQ(extents[0].count, 5u);
  EXPECT_EQ(extents[0].weight, 2.0);
  EXPECT_TRUE(extents[0].seekable);
  EXPECT_EQ(extents[1].first, 5u);
  EXPECT_EQ(extents[1].count, 4u);
  EXPECT_FALSE(extents[1].seekable);
  EXPECT_EQ(extents[2].first, 9u);
  EXPECT_EQ(extents[2].weight, 0.5);
}

TEST(DataIndex, FingerprintIsOfTheSamplesAlone) {
  const std::vector<DataFile> here = {{"a", 0, true, {1, 2}}}, there = {{"moved/a", 0, true, {1, 7}}};
  EXPECT_EQ(index_of(here, {3}).fingerprint(), index_of(there, {3}).fingerprint());
  EXPECT_NE(index_of(here, {3}).fingerprint(), index_of(here, {2}).fingerprint());
}

}  // namespace
}  // namespace asterism::data
