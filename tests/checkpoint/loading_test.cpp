// What loading and converting read from the disk: what they need, and no more.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "asterism/checkpoint/convert.h"
#include "asterism/core/file.h"
#include "tests/support/conversions.h"
#include "tests/support/process_counters.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::TemporaryFolder;

/// Which pages of a file the system holds in memory, one entry a page.
std::vector<bool> cached_pages(const fs::path& path) {
  const auto file = MappedFile::open(path);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> bits((file->size() + page - 1) / page);
  EXPECT_EQ(::mincore(const_cast<std::byte*>(file->data()), file->size(), bits.data()), 0);
  std::vector<bool> cached;
  for (const unsigned char entry : bits) cached.push_back((entry & 1) != 0);
  return cached;
}

/// Makes the system forget the contents of a file. False where it does not (a file system in memory).
bool forget(const fs::path& path) {
  sync_path(path);
  const OpenedFile file = open_regular_file(path);
  ::posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file.descriptor);
  return std::ranges::count(cached_pages(path), true) == 0;
}

/// A checkpoint of some megabytes with an MTP layer that a model without MTP has no use for.
model::Config write_with_unused_mtp(const fs::path& folder, const Storage& storage) {
  auto json = testing::tiny_config_json();
  const std::pair<const char*, int64_t> sizes[] = {
      {"hidden_size", 512}, {"moe_intermediate_size", 512}, {"n_routed_experts", 32}, {"num_hidden_layers", 1}};
  for (const auto& [key, value] : sizes) json[key] = value;
  json["compress_ratios"] = {0, 0};
  json["num_nextn_predict_layers"] = 1;
  model::Config config = model::parse_config(json, "large");
  write_initial_checkpoint(folder, config, 1, {.spelling = Spelling::kModule, .storage = storage});
  json["num_nextn_predict_layers"] = 0;
  std::ofstream(folder / "config.json") << json.dump();
  return model::read_config(folder / "config.json");
}

// The files are mapped, and the system reads a mapping in windows of its own choice. So what is asserted is: every page
// of a tensor of the model was read, and in the middle of what the model has no use for, no page was.
TEST(Loading, ReadsTheTensorsOfTheModelAndLeavesTheOthersOnTheDisk) {
  const TemporaryFolder folder;
  const model::Config config =
      write_with_unused_mtp(folder / "model", {.experts = testing::kBf16, .dense = testing::kBf16});
  const fs::path path = folder / "model" / "model.safetensors";
  if (!forget(path)) GTEST_SKIP() << "this file system keeps its files in memory";
  read_weights(folder / "model", config);
  const std::vector<bool> cached = cached_pages(path);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const Source source = Source::open(folder / "model");
  const auto count = [&](uint64_t begin, uint64_t end) {  // of the pages with these bytes
    const auto page_of = [&](uint64_t byte) { return cached.begin() + static_cast<int64_t>(byte / page); };
    return std::count(page_of(begin), page_of(end - 1) + 1, true);
  };
  uint64_t last_needed = 0;
  for (const std::string& name : source.names()) {
    const TensorInfo& info = source.info(name);
    if (name.starts_with("mtp.")) continue;
    const uint64_t end = info.offset + info.bytes;
    EXPECT_EQ(count(info.offset, end), static_cast<int64_t>((end - 1) / page - info.offset / page + 1)) << name;
    last_needed = std::max(last_needed, end);
  }
  const uint64_t size = fs::file_size(path);
  ASSERT_GT(size - last_needed, 45U << 20) << "tensors of the MTP layer come last";
  EXPECT_EQ(count(last_needed + (16 << 20), size - (16 << 20)), 0);
}

TEST(Loading, AConversionReadsEachByteOfTheModelOnce) {
  if (testing::bytes_read_so_far() == 0) GTEST_SKIP() << "the system does not count";
  const TemporaryFolder folder;
  write_with_unused_mtp(folder / "model", {.experts = Form::fp4(), .dense = Form::fp8()});
  const Source source = Source::open(folder / "model");
  uint64_t needed = 0;
  for (const std::string& name : source.names()) {
    if (!name.starts_with("mtp.")) needed += source.info(name).bytes;
  }
  for (const std::optional<Form>& experts : {std::optional<Form>(), std::optional<Form>(testing::kBf16)}) {
    const fs::path out = folder / (experts ? "bf16" : "same");
    const uint64_t before = testing::bytes_read_so_far();
    convert_checkpoint(folder / "model", out, {.spelling = Spelling::kNative, .storage = {.experts = experts}}, 3);
    const uint64_t read = testing::bytes_read_so_far() - before;
    EXPECT_GE(read, needed);
    EXPECT_LE(read, needed + 100'000) << "counters, random names of temporary files";
  }
}

}  // namespace
}  // namespace asterism::checkpoint
