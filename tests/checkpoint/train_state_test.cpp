#include "asterism/checkpoint/train_state.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/file_faults.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::FileFaults;
using testing::TemporaryFolder;
using Names = std::set<std::string>;
using Steps = std::vector<int64_t>;

TrainState state_of(int64_t step) {
  TrainState state;
  state.info = {{"step", step}, {"note", "kept"}};
  state.tensors.push_back({"param.a", at::full({2, 3}, static_cast<float>(step)), {}});
  return state;
}

void save(const StateFolder& folder, int64_t step, int64_t keep = 2) {
  folder.save(step, state_of(step), keep, [](const fs::path& staging) {
    AtomicFolder adapter(staging / "adapter");
    write_text_atomically(adapter.staging() / "weights", "pairs");
    adapter.publish();
  });
}

/// Every checkpoint of the folder is whole and what was written.
void expect_intact(const StateFolder& folder, const Steps& expected) {
  EXPECT_EQ(folder.steps(), expected);
  for (const int64_t step : folder.steps()) {
    const TrainState state = read_train_state(folder.path_of(step));
    EXPECT_EQ(state.info.at("step"), step);
    EXPECT_TRUE(at::equal(state.tensors.at(0).tensor, at::full({2, 3}, static_cast<float>(step))));
  }
}

TEST(StateFolder, SavesReadsAndKeepsTheNewest) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  for (const int64_t step : {2, 4, 6}) save(folder, step);
  expect_intact(folder, {4, 6});
  EXPECT_EQ(root.entries(), (Names{"latest", "step-00000004", "step-00000006"}));
  EXPECT_EQ(read_text(root / "latest"), "step-00000006\n");
  EXPECT_EQ(read_train_state(folder.path_of(6)).info.at("note"), "kept");
  EXPECT_EQ(read_text(folder.path_of(6) / "adapter/weights"), "pairs");
}

TEST(StateFolder, AFailingSaveLeavesThePreviousCheckpoint) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  save(folder, 2);
  EXPECT_THROW(folder.save(4, state_of(4), 2, [](const fs::path&) { throw RunError("no space left"); }), RunError);
  expect_intact(folder, {2});
  EXPECT_EQ(root.entries(), (Names{"latest", "step-00000002"})) << "staging files were left behind";
}

/// One save of step 6 beside steps 2 and 4 with a fault in the given call of a kind; false when there is no such call.
bool save_with_fault(FileFaults::Fault fault) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  save(folder, 2);
  save(folder, 4);
  std::string error;
  int64_t calls = 0;
  {
    const FileFaults faults(root.path(), fault);
    try {
      save(folder, 6);
    } catch (const RunError& failure) {
      error = failure.what();
    }
    calls = faults.count();
  }
  if (calls < fault.number) return false;
  SCOPED_TRACE(text("call ", fault.number, " of kind ", static_cast<int>(fault.kind), ": ", error));
  EXPECT_NE(error.find(std::strerror(fault.error)), std::string::npos);
  EXPECT_NE(error.find(root.path().string()), std::string::npos) << "expected the path";
  // Whatever failed: the checkpoints before are there, and a new one is complete or absent.
  const Steps steps = folder.steps();
  const bool saved = steps.back() == 6;
  expect_intact(folder, saved ? (steps.size() == 3 ? Steps{2, 4, 6} : Steps{4, 6}) : Steps{2, 4});
  const std::string latest = read_text(root / "latest");
  EXPECT_TRUE(latest == "step-00000004\n" || (saved && latest == "step-00000006\n")) << latest;
  // The next start and the next save find nothing in their way.
  folder.tidy();
  EXPECT_EQ(read_text(root / "latest"), saved ? "step-00000006\n" : "step-00000004\n");
  save(folder, 8);
  expect_intact(folder, {saved ? 6 : 4, 8});
  EXPECT_EQ(root.entries().size(), 3u);
  return true;
}

TEST(StateFolder, AFaultInAnyCallThatWritesLeavesWhatWasThere) {
  // Full disk, read-only mount, broken device; once, or from then on as a disk that stays full.
  constexpr std::array kErrors = {ENOSPC, EROFS, EIO};
  for (const auto kind : {FileFaults::Kind::kOpen, FileFaults::Kind::kWrite, FileFaults::Kind::kSync,
                          FileFaults::Kind::kRename, FileFaults::Kind::kMakeFolder, FileFaults::Kind::kRemove}) {
    for (const bool stays : {false, true}) {
      int64_t number = 1;
      while (save_with_fault({kind, number, kErrors[static_cast<size_t>(number) % kErrors.size()], stays})) ++number;
      EXPECT_GT(number, 2) << "a save has at least two calls of kind " << static_cast<int>(kind);
    }
  }
}

TEST(StateFolder, TidyRemovesWhatACutOffSaveLeftAndRepairsLatest) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  save(folder, 2);
  fs::copy(folder.path_of(2), folder.path_of(4), fs::copy_options::recursive);  // killed before latest was written
  fs::create_directories(root / "step-00000006.tmp-17-5");
  fs::create_directories(root / "probe");
  fs::create_directories(root / "something-else");
  EXPECT_EQ(folder.steps(), (Steps{2, 4}));
  folder.tidy();
  EXPECT_EQ(root.entries(), (Names{"latest", "step-00000002", "step-00000004", "something-else"}));
  EXPECT_EQ(read_text(root / "latest"), "step-00000004\n");
  fs::remove_all(folder.path_of(2));
  fs::remove_all(folder.path_of(4));
  folder.tidy();
  EXPECT_EQ(root.entries(), Names{"something-else"});
}

TEST(StateFolder, KeepNeverRemovesTheOnlyCompleteOne) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  for (const int64_t step : {1, 2, 3}) {
    save(folder, step, 0);
    expect_intact(folder, {step});
  }
}

TEST(StateFolder, APastThatIsGivenUpStaysUntilTheNewOneHasACheckpoint) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  for (const int64_t step : {2, 4, 6}) save(folder, step, 3);
  folder.set_aside_after(2);
  expect_intact(folder, {2});
  EXPECT_EQ(read_text(root / "latest"), "step-00000002\n");
  EXPECT_EQ(read_train_state(root / "abandoned-step-00000006").info.at("step"), 6);
  save(folder, 4, 3);
  expect_intact(folder, {2, 4});
  EXPECT_EQ(root.entries(), (Names{"latest", "step-00000002", "step-00000004"}));
  folder.set_aside_after(0);
  EXPECT_EQ(folder.steps(), Steps{});
  EXPECT_FALSE(fs::exists(root / "latest"));
}

TEST(StateFolder, TheProbeLeavesNoTrace) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  folder.probe(state_of(0));
  EXPECT_EQ(root.entries(), Names{});
}

TEST(StateFolder, TheProbeFindsAFolderThatCannotHoldCheckpoints) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  for (int64_t number = 1;; ++number) {
    const FileFaults faults(root.path(), {.number = number, .error = EROFS, .stays = true});
    std::string error;
    try {
      folder.probe(state_of(0));
    } catch (const RunError& failure) {
      error = failure.what();
    }
    if (faults.count() < number) break;
    EXPECT_NE(error.find("Read-only file system"), std::string::npos) << "call " << number << ": " << error;
  }
}

TEST(ReadTrainState, DamagedPartsAreInputErrors) {
  const TemporaryFolder root;
  const StateFolder folder(root.path());
  save(folder, 2);
  const fs::path path = folder.path_of(2);
  const auto expect_refused = [&](const std::string& fragment) {
    const std::string error = error_of<InputError>([&] { read_train_state(path); });
    EXPECT_NE(error.find(fragment), std::string::npos) << error;
    EXPECT_NE(error.find(path.string()), std::string::npos) << error;
  };
  const std::string good = read_text(path / "state.json");
  for (const std::string& bad : {std::string("{"), std::string(R"({"format_version": 99, "step": 2})"),
                                 std::string(R"({"step": 2})"), std::string("[2]")}) {
    std::ofstream(path / "state.json") << bad;
    expect_refused("state.json");
  }
  std::string edited = good;
  edited.replace(edited.find("kept"), 4, "kepT");
  std::ofstream(path / "state.json") << edited;
  expect_refused("state.json: its checksum is not the one in manifest.json");
  std::ofstream(path / "state.json") << good;
  read_train_state(path);

  const std::string tensors = read_text(path / "state.safetensors");
  std::string flipped = tensors;
  flipped.back() ^= 1;
  std::ofstream(path / "state.safetensors") << flipped;
  expect_refused("state.safetensors: its checksum");
  std::ofstream(path / "state.safetensors") << tensors.substr(0, tensors.size() - 1);
  expect_refused(text("state.safetensors: expected ", tensors.size(), " bytes, found ", tensors.size() - 1));
  fs::remove(path / "state.safetensors");
  expect_refused("1 missing files");
  EXPECT_THROW(read_train_state(root / "absent"), InputError);
}

}  // namespace
}  // namespace asterism::checkpoint
