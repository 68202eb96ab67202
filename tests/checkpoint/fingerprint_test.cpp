#include "asterism/checkpoint/fingerprint.h"

#include <gtest/gtest.h>

#include "asterism/checkpoint/safetensors.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::TemporaryFolder;

std::vector<NamedTensor> tensors() {
  return {{"a.weight", at::arange(40000, at::kFloat).reshape({200, 200}), {}},
          {"b.weight", at::ones({3}, at::kFloat), {}},
          {"table", at::arange(6, at::kLong), {}}};
}

/// One file, or one file a tensor and their index.
void write_files(const fs::path& folder, const std::vector<NamedTensor>& tensors, bool cut) {
  if (!cut) return write_safetensors(folder / "model.safetensors", tensors);
  nlohmann::json index;
  for (const NamedTensor& tensor : tensors) {
    const std::string file = tensor.name + ".safetensors";
    write_safetensors(folder / file, {tensor});
    index["weight_map"][tensor.name] = file;
  }
  write_text_atomically(folder / "model.safetensors.index.json", index.dump());
}

nlohmann::ordered_json fingerprint(const std::vector<NamedTensor>& tensors,
                                   const std::string& config = R"({"hidden_size": 4})", bool cut = false) {
  const TemporaryFolder folder;
  folder.write("config.json", config);
  write_files(folder.path(), tensors, cut);
  return base_fingerprint(folder.path());
}

TEST(BaseFingerprint, IsThatOfTheContentWhereverItLies) {
  const auto one = fingerprint(tensors());
  EXPECT_EQ(one, fingerprint(tensors()));
  EXPECT_EQ(one, fingerprint(tensors(), R"({"hidden_size": 4})", true)) << "cut into shards";
  EXPECT_EQ(one.at("tensors"), 3);
  EXPECT_EQ(one.at("bytes"), 160000 + 12 + 48);
}

TEST(BaseFingerprint, NoticesAnotherTensorNameShapeDtypeAndValue) {
  const auto base = fingerprint(tensors()).at("weights");
  std::set<std::string> seen{base};
  const auto expect_new = [&](const std::vector<NamedTensor>& changed) {
    EXPECT_TRUE(seen.insert(fingerprint(changed).at("weights")).second);
  };
  auto changed = tensors();
  changed.pop_back();
  expect_new(changed);
  changed = tensors();
  changed[0].name = "c.weight";
  expect_new(changed);
  changed = tensors();
  changed[0].tensor = changed[0].tensor.reshape({100, 400});
  expect_new(changed);
  changed = tensors();
  changed[1].tensor = changed[1].tensor.view(at::kInt);
  expect_new(changed);
  for (int64_t i = 0; i < 3; ++i) {  // every number of a small tensor
    changed = tensors();
    changed[1].tensor[i] = 1.0000001f;
    expect_new(changed);
  }
  changed = tensors();
  changed[2].tensor[5] = 4;
  expect_new(changed);
  changed = tensors();
  changed[0].tensor *= 1.0000002f;  // a large one that was trained a little
  expect_new(changed);
}

TEST(BaseFingerprint, ReadsTheConfigurationButNotWhoWroteIt) {
  const auto base = fingerprint(tensors());
  EXPECT_EQ(base, fingerprint(tensors(), R"({"transformers_version": "5", "dtype": "x", "hidden_size":4})"));
  const auto other = fingerprint(tensors(), R"({"hidden_size": 5})");
  EXPECT_EQ(other.at("weights"), base.at("weights"));
  EXPECT_NE(other.at("config"), base.at("config"));
}

TEST(BaseFingerprint, RefusesAFolderWithoutACheckpoint) {
  const TemporaryFolder folder;
  EXPECT_THROW(base_fingerprint(folder.path()), InputError);
}

}  // namespace
}  // namespace asterism::checkpoint
