#include "asterism/checkpoint/stored_bytes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/conversions.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::TemporaryFolder;
using asterism::testing::write_conversion_source;

/// Reads every matrix of every expert and compares the bytes with those that a mapping shows.
void check_experts(const std::filesystem::path& folder, const model::Config& config) {
  const BoundCheckpoint bound = bind_checkpoint(folder, config, true);
  const StoredBytes bytes(bound.source);
  std::vector<std::byte> data, scale;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    const BoundTensor& tensor = bound.tensors[i];
    if (!is_packed_experts(tensor.spec.name)) continue;
    const auto matrices = packed_matrices(tensor.spec.name);
    const auto count = static_cast<int64_t>(matrices.size());
    const auto shape = part_shape(tensor.spec);
    const TargetTensor target{.name = "t", .spec = i, .matrices = count};
    for (int64_t expert = 0; expert < config.num_experts; ++expert) {
      for (int64_t m = 0; m < count; ++m) {
        const StoredMatrix expected = tensor.whole != nullptr
                                          ? stored_matrix(bound.source, *tensor.whole).part(expert, m, count)
                                          : stored_matrix(bound.source, *tensor.of_expert.at({expert, matrices[m]}));
        const Chunk chunk{i, expert, m, 128, shape[0] - 128, shape[1]};
        const StoredPlace place = locate(bytes, tensor, target, chunk);
        place.read(chunk, data, scale);
        const at::Tensor rows = expected.data.narrow(0, 128, shape[0] - 128).contiguous();
        ASSERT_EQ(std::memcmp(data.data(), rows.const_data_ptr(), rows.nbytes()), 0) << tensor.spec.name;
        const at::Tensor scales = place.form.coding == Form::Coding::kFp4
                                      ? expected.scale.narrow(0, 128, shape[0] - 128).contiguous()
                                      : expected.scale.narrow(0, 1, expected.scale.size(0) - 1).contiguous();
        ASSERT_EQ(std::memcmp(scale.data(), scales.const_data_ptr(), scales.nbytes()), 0) << tensor.spec.name;
      }
    }
  }
}

TEST(StoredBytes, FindsRowsOfPackedAndSingleExperts) {
  const TemporaryFolder folder;
  int number = 0;
  for (const Spelling spelling : {Spelling::kModule, Spelling::kNative}) {
    for (const Form& experts : {Form::fp4(), Form::fp8(), Form::fp8(at::kFloat)}) {
      const auto path = folder / std::to_string(number++);
      const auto config = write_conversion_source(
          path, 0, {.spelling = spelling, .max_shard_bytes = 300'000, .storage = {.experts = experts}});
      check_experts(path, config);
    }
  }
}

}  // namespace
}  // namespace asterism::checkpoint
