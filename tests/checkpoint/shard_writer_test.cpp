#include "asterism/checkpoint/shard_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "asterism/checkpoint/shards.h"
#include "asterism/core/crc32c.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::error_of;
using asterism::testing::TemporaryFolder;

/// Three tensors, the last one in many chunks.
std::vector<TargetTensor> chunk_targets() {
  return {{.name = "a", .form = Form::plain(at::kFloat), .shape = {3, 4}},
          {.name = "b", .scale_name = "b.s", .form = Form::fp8(), .shape = {2, 300, 100}, .matrices = 2},
          {.name = "c", .form = Form::plain(at::kBFloat16), .shape = {1000, 6000}}};
}

/// Every byte tells the target, the matrix and the row it belongs to.
void fill_marks(const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale, int) {
  const auto mark = static_cast<int>(target.name[0]) + 31 * static_cast<int>(2 * chunk.expert + chunk.matrix);
  const int64_t row_bytes = chunk.columns * static_cast<int64_t>(c10::elementSize(target.form.dtype));
  for (int64_t row = 0; row < chunk.rows; ++row) {
    std::fill_n(data + row * row_bytes, row_bytes, static_cast<std::byte>(mark + 7 * (chunk.row + row)));
  }
  const int64_t blocks = (chunk.rows + 127) / 128;
  for (int64_t i = 0; i < blocks && scale != nullptr; ++i) {
    scale[i] = static_cast<std::byte>(mark + (chunk.row / 128) + i);
  }
}

TEST(ShardWriter, EveryChunkLandsInItsPlaceWhateverTheThreads) {
  const TemporaryFolder folder;
  const auto tensors = chunk_targets();
  const ShardPlan plan = plan_shards(tensors, 200'000);
  ASSERT_EQ(plan.files.size(), 2U);
  for (const char* name : {"one", "five"}) {
    fs::create_directory(folder / name);
    write_planned(folder / name, tensors, plan, fill_marks, {.workers = name[0] == 'o' ? 1 : 5});
    write_text_atomically(folder / name / "model.safetensors.index.json", plan.index);
  }
  for (const PlannedFile& file : plan.files) {
    EXPECT_EQ(fs::file_size(folder / "one" / file.name), file.bytes);
    EXPECT_TRUE(read_text(folder / "one" / file.name) == read_text(folder / "five" / file.name));
  }
  const Source source = Source::open(folder / "five");
  const at::Tensor b = source.tensor("b").view(at::kByte), c = source.tensor("c").view(at::kByte);
  EXPECT_EQ(b[1][150 + 149][99].item<int64_t>(), ('b' + 31 * 3 + 7 * 149) & 255);
  EXPECT_EQ(c[999][11999].item<int64_t>(), ('c' + 7 * 999) & 255);
  EXPECT_EQ(source.tensor("b.s").view(at::kByte)[1][3][0].item<int64_t>(), ('b' + 31 * 3 + 1) & 255);
}

TEST(ShardWriter, TellsChecksumsAndProgressAndSkipsFiles) {
  const TemporaryFolder folder;
  const auto tensors = chunk_targets();
  const ShardPlan plan = plan_shards(tensors, 200'000);
  std::map<std::string, uint32_t> checksums;
  uint64_t last = 0;
  ShardWriterOptions options{.workers = 3, .skip = {plan.files[0].name}};
  options.on_file = [&](const PlannedFile& file, uint32_t checksum) { checksums[file.name] = checksum; };
  options.on_progress = [&](uint64_t bytes) {
    EXPECT_GE(bytes, last);
    last = bytes;
  };
  write_planned(folder.path(), tensors, plan, fill_marks, options);
  EXPECT_EQ(folder.entries(), (std::set<std::string>{plan.files[1].name}));
  EXPECT_EQ(last, plan.bytes());
  const std::string content = read_text(folder / plan.files[1].name);
  EXPECT_EQ(checksums, (std::map<std::string, uint32_t>{{plan.files[1].name, crc32c(content.data(), content.size())}}));
}

TEST(ShardWriter, AFailureEndsAllAndLeavesNoCompleteFile) {
  const TemporaryFolder folder;
  const auto tensors = chunk_targets();
  const ShardPlan plan = plan_shards(tensors, 1'000'000'000);
  const FillChunk broken = [&](const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale,
                               int worker) {
    if (target.name == "c" && chunk.row > 0) run_error("no more");
    fill_marks(target, chunk, data, scale, worker);
  };
  EXPECT_EQ(error_of<RunError>([&] { write_planned(folder.path(), tensors, plan, broken, {.workers = 4}); }),
            "no more");
  EXPECT_EQ(folder.entries(), (std::set<std::string>{"model.safetensors.part"}));
  EXPECT_THROW(write_planned(folder / "absent", tensors, plan, fill_marks, {}), RunError);
}

}  // namespace
}  // namespace asterism::checkpoint
