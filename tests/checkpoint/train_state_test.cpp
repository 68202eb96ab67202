#include "asterism/checkpoint/train_state.h"

#include <gtest/gtest.h>

#include <fstream>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;

TrainState state_of(float value) {
  TrainState state;
  state.info["note"] = "kept";
  state.tensors.push_back({"param.a", at::full({2, 3}, value), {}});
  return state;
}

TEST(StateFolder, SavesReadsAndKeepsTheNewest) {
  const testing::TemporaryFolder root;
  StateFolder folder(root.path());
  for (const int64_t step : {2, 4, 6}) folder.save(step, state_of(static_cast<float>(step)), 2);
  EXPECT_EQ(folder.steps(), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(read_text(root.path() / "latest"), "step-00000006\n");
  const TrainState state = read_train_state(folder.path_of(6));
  EXPECT_EQ(state.info.at("step"), 6);
  EXPECT_EQ(state.info.at("note"), "kept");
  EXPECT_TRUE(at::equal(state.tensors.at(0).tensor, at::full({2, 3}, 6.0f)));
}

TEST(StateFolder, AFailingSaveLeavesThePreviousCheckpoint) {
  const testing::TemporaryFolder root;
  StateFolder folder(root.path());
  folder.save(2, state_of(2.0f), 2);
  EXPECT_THROW(folder.save(4, state_of(4.0f), 2, [](const fs::path&) { throw RunError("no space left"); }), RunError);
  EXPECT_EQ(folder.steps(), (std::vector<int64_t>{2}));
  EXPECT_EQ(read_text(root.path() / "latest"), "step-00000002\n");
  int64_t entries = 0;
  for (const auto& entry : fs::directory_iterator(root.path())) entries += entry.exists();
  EXPECT_EQ(entries, 2) << "staging files were left behind";
}

TEST(StateFolder, IgnoresAndRemovesWhatACutOffSaveLeft) {
  const testing::TemporaryFolder root;
  {
    StateFolder folder(root.path());
    folder.save(2, state_of(2.0f), 2);
  }
  fs::create_directories(root.path() / "step-00000004.tmp-17-5");
  fs::create_directories(root.path() / "something-else");
  StateFolder folder(root.path());
  EXPECT_EQ(folder.steps(), (std::vector<int64_t>{2}));
  EXPECT_FALSE(fs::exists(root.path() / "step-00000004.tmp-17-5"));
  EXPECT_TRUE(fs::exists(root.path() / "something-else"));
}

TEST(ReadTrainState, DamagedPartsAreInputErrors) {
  const testing::TemporaryFolder root;
  StateFolder folder(root.path());
  folder.save(2, state_of(2.0f), 2);
  const fs::path path = folder.path_of(2);
  const std::string good = read_text(path / "state.json");
  for (const std::string& bad : {std::string("{"), std::string(R"({"format_version": 99, "step": 2})"),
                                 std::string(R"({"format_version": 1})")}) {
    std::ofstream(path / "state.json") << bad;
    EXPECT_THROW(read_train_state(path), InputError) << bad;
  }
  std::ofstream(path / "state.json") << good;
  fs::resize_file(path / "state.safetensors", fs::file_size(path / "state.safetensors") - 1);
  EXPECT_THROW(read_train_state(path), InputError);
}

}  // namespace
}  // namespace asterism::checkpoint
