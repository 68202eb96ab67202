#include "asterism/checkpoint/shards.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "asterism/checkpoint/shard_plan.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::error_of;
using asterism::testing::TemporaryFolder;
using Json = nlohmann::json;
using Names = std::set<std::string>;

const char* const kIndex = "model.safetensors.index.json";

std::vector<NamedTensor> five_tensors() {
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 5; ++i)
    tensors.push_back({"t" + std::to_string(i), at::full({4}, i, at::kFloat)});  // 16 bytes each
  return tensors;
}

void write_shards(const fs::path& folder, const std::vector<NamedTensor>& tensors, uint64_t max_shard_bytes) {
  std::vector<TargetTensor> targets;
  std::map<std::string, NamedTensor> by_name;
  for (const NamedTensor& tensor : tensors) {
    targets.push_back({tensor.name, "", Form::plain(tensor.stored_dtype()), tensor.tensor.sizes().vec()});
    by_name[tensor.name] = tensor;
  }
  const ShardPlan plan = plan_shards(targets, max_shard_bytes);
  std::vector<std::vector<NamedTensor>> files(plan.files.size());
  for (size_t i = 0; i < targets.size(); ++i) files[plan.placements[i].file].push_back(by_name[targets[i].name]);
  for (size_t i = 0; i < files.size(); ++i) write_safetensors(folder / plan.files[i].name, files[i]);
  if (!plan.index.empty()) write_text_atomically(folder / kIndex, plan.index);
}

/// A folder with t0, t1 in shard 1, t2, t3 in shard 2 and t4 in shard 3, whose index `edit` may change.
template <typename Edit>
std::string error_after(const TemporaryFolder& folder, Edit&& edit) {
  write_shards(folder.path(), five_tensors(), 32);
  Json index = Json::parse(read_text(folder / kIndex));
  edit(index);
  folder.write(kIndex, index.dump());
  return error_of<InputError>([&] { Source::open(folder.path()); });
}

TEST(Shards, OneShardNeedsNoIndex) {
  const TemporaryFolder folder;
  write_shards(folder.path(), five_tensors(), 80);
  EXPECT_EQ(folder.entries(), (Names{"model.safetensors"}));
  const Source source = Source::open(folder.path());
  EXPECT_EQ(source.names(), (std::vector<std::string>{"t0", "t1", "t2", "t3", "t4"}));
  EXPECT_EQ(source.tensor("t3")[0].item<float>(), 3.0F);
}

TEST(Shards, AreCutInOrderAndIndexed) {
  const TemporaryFolder folder;
  write_shards(folder.path(), five_tensors(), 47);
  EXPECT_EQ(folder.entries(), (Names{"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                                     "model-00003-of-00003.safetensors", kIndex}));
  const Json index = Json::parse(read_text(folder / kIndex));
  EXPECT_EQ(index["metadata"]["total_size"], 80);
  EXPECT_EQ(index["weight_map"].size(), 5U);
  const Source source = Source::open(folder.path());
  for (int i = 0; i < 5; ++i) {
    const std::string name = "t" + std::to_string(i);
    EXPECT_EQ(source.file_of(name).filename(), "model-0000" + std::to_string(i / 2 + 1) + "-of-00003.safetensors");
    EXPECT_EQ(source.info(name).shape, std::vector<int64_t>{4});
    EXPECT_TRUE(at::equal(source.tensor(name), at::full({4}, i, at::kFloat)));
  }
}

TEST(Shards, ATensorAboveTheLimitHasAShardOfItsOwn) {
  const TemporaryFolder folder;
  auto tensors = five_tensors();
  tensors.insert(tensors.begin() + 1, {"big", at::zeros({100})});
  write_shards(folder.path(), tensors, 64);
  const Source source = Source::open(folder.path());
  EXPECT_EQ(source.file_of("t0").filename(), "model-00001-of-00003.safetensors");
  EXPECT_EQ(source.file_of("big").filename(), "model-00002-of-00003.safetensors");
  EXPECT_EQ(source.file_of("t4").filename(), "model-00003-of-00003.safetensors");
}

TEST(Shards, TheLimitCountsBytesAfterConversion) {
  const TemporaryFolder folder;
  auto tensors = five_tensors();
  for (NamedTensor& tensor : tensors) tensor.dtype = at::kBFloat16;
  write_shards(folder.path(), tensors, 40);
  EXPECT_EQ(folder.entries(), (Names{"model.safetensors"}));
}

TEST(Source, ReadsAnAdapterByItsStem) {
  const TemporaryFolder folder;
  write_safetensors(folder / "adapter_model.safetensors", {{"a", at::zeros({1})}});
  EXPECT_TRUE(Source::open(folder.path(), "adapter_model").contains("a"));
}

TEST(Source, RefusesFoldersWithoutOrWithTwoCheckpoints) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of<InputError>([&] { Source::open(folder.path()); }).find("neither"), std::string::npos);
  EXPECT_NE(error_of<InputError>([&] { Source::open(folder / "absent"); }).find("no such folder"), std::string::npos);
  write_shards(folder.path(), five_tensors(), 32);
  write_safetensors(folder / "model.safetensors", five_tensors());
  EXPECT_NE(error_of<InputError>([&] { Source::open(folder.path()); }).find("found both"), std::string::npos);
}

TEST(Source, AnUnknownNameGetsTheNearestOne) {
  const TemporaryFolder folder;
  write_safetensors(folder / "model.safetensors", {{"model.norm.weight", at::zeros({1})}});
  const Source source = Source::open(folder.path());
  const std::string message = error_of<InputError>([&] { source.tensor("model.norm.weigth"); });
  EXPECT_NE(message.find("the nearest is 'model.norm.weight'"), std::string::npos) << message;
}

TEST(Source, AMissingShardIsReportedWithItsTensors) {
  const TemporaryFolder folder;
  const std::string message =
      error_after(folder, [&](Json&) { fs::remove(folder / "model-00002-of-00003.safetensors"); });
  EXPECT_NE(message.find("1 missing shards"), std::string::npos) << message;
  EXPECT_NE(message.find("model-00002-of-00003.safetensors (2 tensors)"), std::string::npos) << message;
}

TEST(Source, NamesListedButAbsentAndPresentButUnlistedAreReportedTogether) {
  const TemporaryFolder folder;
  const std::string message = error_after(folder, [](Json& index) {
    index["weight_map"]["ghost"] = "model-00001-of-00003.safetensors";
    index["weight_map"].erase("t3");
  });
  EXPECT_NE(message.find("ghost in model-00001-of-00003.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("t3 in model-00002-of-00003.safetensors"), std::string::npos) << message;
}

TEST(Source, ANameListedInTheWrongShardIsReported) {
  const TemporaryFolder folder;
  const std::string message =
      error_after(folder, [](Json& index) { index["weight_map"]["t0"] = "model-00002-of-00003.safetensors"; });
  EXPECT_NE(message.find("t0 in model-00001-of-00003.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find("t0 in model-00002-of-00003.safetensors"), std::string::npos) << message;
}

TEST(Source, APathOutOfTheFolderIsRefused) {
  for (const char* path : {"../x.safetensors", "/tmp/x.safetensors", "a/b.safetensors", "..", ""}) {
    const TemporaryFolder folder;
    const std::string message = error_after(folder, [&](Json& index) { index["weight_map"]["t0"] = path; });
    EXPECT_NE(message.find("a file in the same folder"), std::string::npos) << message;
  }
}

TEST(Source, MalformedIndexesAreRefused) {
  for (const char* content :
       {"", "[]", "{}", "{\"weight_map\":[]}", "{\"weight_map\":{}}", "{\"weight_map\":{\"a\":1}}",
        "{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", "{\"weight_map\""}) {
    const TemporaryFolder folder;
    folder.write(kIndex, content);
    const std::string message = error_of<InputError>([&] { Source::open(folder.path()); });
    EXPECT_NE(message.find(kIndex), std::string::npos) << content;
  }
}

/// The message about a folder whose second shard something else stands for.
template <typename Replace>
std::string error_with_second_shard(Replace&& replace) {
  const TemporaryFolder folder;
  const fs::path shard = folder / "model-00002-of-00003.safetensors";
  const std::string message = error_after(folder, [&](Json&) {
    fs::rename(shard, folder / "moved");
    replace(shard);
  });
  EXPECT_NE(message.find("model-00002-of-00003.safetensors"), std::string::npos) << message;
  return message;
}

TEST(Source, WhatIsNoFileIsRefusedAsAShardAndNobodyWaits) {
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(error_with_second_shard([](const fs::path& shard) { fs::create_directory(shard); }), "not a regular file");
  says(error_with_second_shard([](const fs::path& shard) { ::mkfifo(shard.c_str(), 0600); }), "not a regular file");
  says(error_with_second_shard([](const fs::path& shard) { fs::create_symlink("/dev/zero", shard); }),
       "not a regular file");
  says(error_with_second_shard([](const fs::path& shard) { fs::create_symlink(shard, shard); }), "cannot look it up");
  says(error_with_second_shard([](const fs::path& shard) { fs::create_symlink("nothing", shard); }),
       "1 missing shards");
  says(error_with_second_shard([](const fs::path& shard) { std::ofstream(shard).flush(); }),
       "at least 8 bytes, found 0");
}

// As in the cache of a download: the files lie elsewhere, under the names of their contents.
TEST(Source, ReadsShardsAndIndexBehindLinks) {
  const TemporaryFolder blobs, folder;
  write_shards(blobs.path(), five_tensors(), 32);
  for (const std::string& name : blobs.entries()) fs::create_symlink(blobs / name, folder / name);
  const Source source = Source::open(folder.path());
  EXPECT_EQ(source.names().size(), 5U);
  EXPECT_TRUE(at::equal(source.tensor("t3"), at::full({4}, 3, at::kFloat)));
}

TEST(Source, NamesOutOfTheFolderAreNoFileNames) {
  EXPECT_TRUE(is_plain_file_name("model-00001-of-00002.safetensors"));
  for (const std::string& name : {std::string("../x"), std::string("/x"), std::string("a/b"), std::string(".."),
                                  std::string("."), std::string(), std::string("a\0b", 3)}) {
    EXPECT_FALSE(is_plain_file_name(name)) << name;
  }
}

TEST(Source, ADamagedShardIsRefusedByName) {
  const TemporaryFolder folder;
  const std::string message =
      error_after(folder, [&](Json&) { fs::resize_file(folder / "model-00003-of-00003.safetensors", 90); });
  EXPECT_NE(message.find("model-00003-of-00003.safetensors"), std::string::npos) << message;
}

}  // namespace
}  // namespace asterism::checkpoint
