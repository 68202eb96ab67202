#include "asterism/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/core/content_hash.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

class Manifest : public ::testing::Test {
 protected:
  Manifest() {
    fs::create_directories(folder_ / "adapter");
    folder_.write("state.json", "{}");
    folder_.write("adapter/weights", "0123456789");
    write_manifest(folder_.path());
  }

  std::string error() const {
    return error_of<InputError>([&] { verify_manifest(folder_.path()); });
  }
  void expect_error(const std::string& fragment) const {
    EXPECT_NE(error().find(fragment), std::string::npos) << "expected \"" << fragment << "\" in " << error();
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Manifest, NamesEveryFileWithSizeAndChecksum) {
  const auto files = nlohmann::json::parse(read_text(folder_ / "manifest.json")).at("files");
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files.at("adapter/weights").at("bytes"), 10);
  EXPECT_EQ(files.at("adapter/weights").at("xxh128"), content_hash_of_file(folder_ / "adapter/weights"));
  verify_manifest(folder_.path());
}

TEST_F(Manifest, FindsEveryChangedByteAndEveryCut) {
  const std::string whole = "0123456789";
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= 1;
    folder_.write("adapter/weights", changed);
    expect_error("adapter/weights: its checksum is not the one in manifest.json");
    folder_.write("adapter/weights", whole.substr(0, i));
    expect_error("adapter/weights: expected 10 bytes, found " + std::to_string(i));
  }
  folder_.write("adapter/weights", whole);
  verify_manifest(folder_.path());
}

TEST_F(Manifest, ListsAllFilesThatAreMissing) {
  fs::remove(folder_ / "state.json");
  fs::remove(folder_ / "adapter/weights");
  expect_error("2 missing files");
  expect_error("state.json");
}

TEST_F(Manifest, OtherFilesDoNotMatter) {
  folder_.write("notes.txt", "mine");
  verify_manifest(folder_.path());
}

TEST_F(Manifest, RefusesWhatIsNoManifest) {
  for (const char* content : {"", "[]", "{}", R"({"files": {}})", R"({"files": {"state.json": 2}})",
                              R"({"files": {"state.json": {"bytes": -2, "xxh128": ""}}})",
                              R"({"files": {"../state.json": {"bytes": 2, "xxh128": ""}}})",
                              R"({"files": {"/etc/passwd": {"bytes": 2, "xxh128": ""}}})"}) {
    folder_.write("manifest.json", content);
    expect_error("manifest.json");
  }
  fs::remove(folder_ / "manifest.json");
  expect_error("manifest.json");
}

}  // namespace
}  // namespace asterism::checkpoint
