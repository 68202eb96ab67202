#include "asterism/checkpoint/checkpoint_slices.h"

#include <gtest/gtest.h>

#include <fstream>

#include "asterism/core/error.h"
#include "tests/support/conversions.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::TemporaryFolder;

struct SliceCase {
  const char* what;
  Spelling spelling;
  Storage stored;
  ReadOptions options;
};

const Storage kCoded = {.experts = Form::fp4(), .dense = Form::fp8()};
const Storage kWideScales = {.experts = Form::fp8(at::kFloat), .dense = Form::fp8(at::kFloat)};
const Storage kBf16Forms = {.experts = testing::kBf16, .dense = testing::kBf16};

const std::vector<SliceCase> kSliceCases = {
    {"as released", Spelling::kNative, kCoded, {.packed = true}},
    {"module names", Spelling::kModule, kCoded, {.packed = true}},
    {"fp32 scales, packed", Spelling::kSavePretrained, kWideScales, {.packed = true}},
    {"decoded to bf16", Spelling::kNative, kWideScales, {.matrix_dtype = at::kBFloat16}},
    {"decoded to fp32", Spelling::kModule, kCoded, {.matrix_dtype = at::kFloat}},
    {"decoded to what holds it", Spelling::kModule, kWideScales, {}},
    {"bf16 as it is", Spelling::kModule, kBf16Forms, {.packed = true}},
    {"bf16 to fp64", Spelling::kNative, kBf16Forms, {.matrix_dtype = at::kDouble}},
    {"rounded to fp8",
     Spelling::kNative,
     kBf16Forms,
     {.packed = true, .storage = {.experts = Form::fp8(), .dense = Form::fp8()}}},
    {"rounded to fp4", Spelling::kModule, kBf16Forms, {.packed = true, .storage = kCoded}},
    {"fp4 to fp8", Spelling::kModule, kCoded, {.packed = true, .storage = {.experts = Form::fp8()}}},
};

// A tensor read in pieces of odd sizes.
at::Tensor read_in_pieces(CheckpointSlices& slices, const std::string& name, at::IntArrayRef shape,
                          at::ScalarType type) {
  const at::Tensor whole = at::empty(shape, type), flat = whole.view({-1});
  int64_t size = 1;
  for (int64_t begin = 0; begin < flat.numel(); size = size * 3 + 1) {
    const int64_t count = std::min(size, flat.numel() - begin);
    slices.read(name, begin, flat.narrow(0, begin, count));
    begin += count;
  }
  return whole;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

TEST(CheckpointSlices, AreThePartsOfWhatIsLoadedWhole) {
  for (const SliceCase& test : kSliceCases) {
    SCOPED_TRACE(test.what);
    const TemporaryFolder folder;
    const model::Config config =
        testing::write_conversion_source(folder / "model", 1, {.spelling = test.spelling, .storage = test.stored});
    LoadedWeights loaded = read_weights(folder / "model", config, test.options);
    CheckpointSlices slices(folder / "model", config, test.options);
    EXPECT_EQ(slices.notes(), loaded.notes);
    model::Weights outlines = slices.outlines();
    std::map<std::string, at::Tensor> named;
    model::for_each_named_slot(config, outlines, [&](const std::string& name, at::Tensor& slot) {
      EXPECT_TRUE(slot.is_meta()) << name;
      named[name] = slot;
    });
    model::for_each_named_slot(config, loaded.weights, [&](const std::string& name, at::Tensor& slot) {
      ASSERT_TRUE(named.contains(name)) << name;
      ASSERT_EQ(named.at(name).sizes(), slot.sizes()) << name;
      ASSERT_EQ(named.at(name).scalar_type(), slot.scalar_type()) << name;
      EXPECT_TRUE(same_bits(read_in_pieces(slices, name, slot.sizes(), slot.scalar_type()), slot)) << name;
      named.erase(name);
    });
    EXPECT_TRUE(named.empty());
    RecodingLoss rounded = slices.rounded(true);
    rounded += slices.rounded(false);
    EXPECT_EQ(rounded.changed, loaded.rounded.changed);
    EXPECT_EQ(rounded.vanished, loaded.rounded.vanished);
    EXPECT_EQ(rounded.largest_relative, loaded.rounded.largest_relative);
  }
}

TEST(CheckpointSlices, MastersAreTheValuesThatWouldBeKept) {
  for (const SliceCase& test : kSliceCases) {
    if (test.options.matrix_dtype == at::kDouble) continue;
    SCOPED_TRACE(test.what);
    const TemporaryFolder folder;
    const model::Config config =
        testing::write_conversion_source(folder / "model", 0, {.spelling = test.spelling, .storage = test.stored});
    const LoadedWeights loaded = read_weights(folder / "model", config, test.options);
    CheckpointSlices slices(folder / "model", config, test.options);
    model::for_each_weight(config, loaded.weights, [&](const model::TensorSpec& spec, const ops::Matrix& weight) {
      if (spec.role == model::TensorRole::kTable) return;
      EXPECT_TRUE(same_bits(read_in_pieces(slices, spec.name, spec.shape, at::kFloat), weight.to(at::kFloat)))
          << spec.name;
    });
  }
}

TEST(CheckpointSlices, AWrongEntryOfATableIsNamed) {
  const TemporaryFolder folder;
  const model::Config config = testing::write_conversion_source(folder / "model", 0, {.spelling = Spelling::kModule});
  const Source source = Source::open(folder / "model");
  const std::string name = "model.layers.0.mlp.gate.tid2eid";
  const TensorInfo& info = source.info(name);
  {
    std::fstream file(source.file_of(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(info.offset) + 5 * 8);
    const int64_t wrong = 3;
    file.write(reinterpret_cast<const char*>(&wrong), sizeof(wrong));
  }
  CheckpointSlices slices(folder / "model", config, {});
  const at::Tensor out = at::empty({4}, at::kLong);
  slices.read(name, 6, out);
  try {
    slices.read(name, 3, out);
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("found 3 at token 2, slot 1"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace asterism::checkpoint
