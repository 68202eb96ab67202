// Disks that are full, read-only or broken, at every call that writes a result: an error that says so, nothing of what
// was there is lost, and the same call again succeeds. Train states: train_state_test.cpp.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "asterism/checkpoint/convert.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/conversions.h"
#include "tests/support/file_faults.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::FileFaults;
using asterism::testing::golden;
using asterism::testing::kBf16;
using asterism::testing::TemporaryFolder;
using asterism::testing::write_conversion_source;
using Kind = FileFaults::Kind;
using Contents = std::map<std::string, std::string>;

constexpr std::array kErrors = {ENOSPC, EROFS, EIO};

Contents contents_of(const fs::path& folder) {
  Contents contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) contents[entry.path().lexically_relative(folder)] = read_text(entry.path());
  }
  return contents;
}

/// What a fault did to a piece of work: nothing when the work has no such call.
struct Outcome {
  bool happened = false;
  std::string error;
};

Outcome run_with_fault(const fs::path& below, const FileFaults::Fault& fault, const std::function<void()>& work) {
  Outcome outcome;
  const FileFaults faults(below, fault);
  try {
    work();
  } catch (const RunError& error) {
    outcome.error = error.what();
  }
  outcome.happened = faults.count() >= fault.number;
  return outcome;
}

/// Calls `check` with a fault in call 1, 2, 3, ... of each kind, once and for good, until it returns false. Without
/// ASTERISM_LONG in strides.
void for_each_fault(int64_t stride, const std::function<bool(const FileFaults::Fault& fault)>& check) {
  if (std::getenv("ASTERISM_LONG") != nullptr) stride = 1;
  for (const Kind kind : {Kind::kOpen, Kind::kWrite, Kind::kSync, Kind::kRename, Kind::kMakeFolder, Kind::kRemove}) {
    for (const bool stays : {false, true}) {
      const int64_t step = kind == Kind::kOpen || kind == Kind::kWrite || kind == Kind::kSync ? stride : 1;
      int64_t number = 1;
      while (check({kind, number, kErrors[static_cast<size_t>(number) % kErrors.size()], stays})) number += step;
      EXPECT_GT(number, 1) << "there is at least one call of kind " << static_cast<int>(kind);
    }
  }
}

void expect_clear(const Outcome& outcome, const FileFaults::Fault& fault, const fs::path& below) {
  if (fault.kind == Kind::kRemove && outcome.error.empty()) return;  // what cannot be removed is left behind
  EXPECT_NE(outcome.error.find(std::strerror(fault.error)), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.error.find(below.string()), std::string::npos) << outcome.error;
}

TEST(WriteFaults, AConversionIsContinuedByTheSameCommand) {
  const TemporaryFolder sources;
  write_conversion_source(sources / "native", 0,
                          {.spelling = Spelling::kNative,
                           .max_shard_bytes = 400'000,
                           .storage = {.experts = Form::fp4(), .dense = Form::fp8(), .norms = at::kBFloat16}});
  sources.write("native/tokenizer.json", "{}");
  const ConvertRequest request = {
      .spelling = Spelling::kModule, .storage = {.experts = kBf16}, .max_shard_bytes = 800'000};
  convert_checkpoint(sources / "native", sources / "whole", request, 2);
  const Contents before = contents_of(sources / "native"), whole = contents_of(sources / "whole");
  ASSERT_GT(whole.size(), 5U) << "config, index, record, tokenizer, several shards";
  for_each_fault(7, [&](const FileFaults::Fault& fault) {
    const TemporaryFolder folder;
    const auto work = [&] { convert_checkpoint(sources / "native", folder / "out", request, 2); };
    const Outcome outcome = run_with_fault(folder.path(), fault, work);
    if (!outcome.happened) return false;
    SCOPED_TRACE(text("call ", fault.number, " of kind ", static_cast<int>(fault.kind), ": ", outcome.error));
    expect_clear(outcome, fault, folder.path());
    // Under its name the result is whole or absent.
    EXPECT_TRUE(!fs::exists(folder / "out") || contents_of(folder / "out") == whole);
    work();
    EXPECT_TRUE(contents_of(folder / "out") == whole);
    EXPECT_EQ(folder.entries(), std::set<std::string>{"out"});
    return !::testing::Test::HasFailure();
  });
  EXPECT_TRUE(contents_of(sources / "native") == before);
}

/// Work that replaces the folder "out" with one that holds `expected`.
void check_replacement(int64_t stride, const Contents& expected, const std::function<void(const fs::path&)>& replace) {
  for_each_fault(stride, [&](const FileFaults::Fault& fault) {
    const TemporaryFolder folder;
    fs::create_directory(folder / "out");
    folder.write("out/before", "what was there");
    const Contents before = contents_of(folder / "out");
    const Outcome outcome = run_with_fault(folder.path(), fault, [&] { replace(folder / "out"); });
    if (!outcome.happened) return false;
    SCOPED_TRACE(text("call ", fault.number, " of kind ", static_cast<int>(fault.kind), ": ", outcome.error));
    expect_clear(outcome, fault, folder.path());
    const Contents now = contents_of(folder / "out");
    EXPECT_TRUE(now == before || now == expected) << "neither the old folder nor the new one";
    EXPECT_TRUE(!outcome.error.empty() || now == expected);
    replace(folder / "out");
    EXPECT_TRUE(contents_of(folder / "out") == expected);
    return !::testing::Test::HasFailure();
  });
}

TEST(WriteFaults, ACheckpointReplacesTheOneBeforeOrLeavesIt) {
  const auto config = model::read_config(golden("hf/hf_unit/config.json"));
  const auto weights = read_weights(golden("hf/hf_unit"), config).weights;
  const WriteOptions options = {.max_shard_bytes = 200'000, .replace = true};
  const TemporaryFolder folder;
  write_checkpoint(folder / "whole", config, weights, options);
  const Contents whole = contents_of(folder / "whole");
  ASSERT_GT(whole.size(), 3U) << "config, index, several shards";
  check_replacement(5, whole, [&](const fs::path& out) { write_checkpoint(out, config, weights, options); });
}

TEST(WriteFaults, AnAdapterReplacesTheOneBeforeOrLeavesIt) {
  const auto config = model::read_config(golden("hf/all_paths/config.json"));
  auto weights = read_weights(golden("hf/all_paths"), config).weights;
  const model::LoraConfig lora = load_adapter(golden("hf/all_paths/lora"), config, weights).lora;
  const auto write = [&](const fs::path& out) { write_adapter(out, config, weights, lora, "base", /*replace=*/true); };
  const TemporaryFolder folder;
  write(folder / "whole");
  check_replacement(3, contents_of(folder / "whole"), write);
}

}  // namespace
}  // namespace asterism::checkpoint
