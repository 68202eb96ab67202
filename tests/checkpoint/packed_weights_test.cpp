#include "asterism/checkpoint/packed_weights.h"

#include <gtest/gtest.h>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "tests/support/packed_weights.h"
#include "tests/support/process_counters.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::checkpoint {
namespace {

using testing::error_of;
using testing::TemporaryFolder;

model::Config config_of(int64_t expert_width) {
  auto json = testing::tiny_config_json();
  json["moe_intermediate_size"] = expert_width;
  return model::parse_config(json, "packed");
}

// A tiny model written to a folder in some storage.
struct StoredModel {
  explicit StoredModel(const Storage& storage, Spelling spelling = Spelling::kNative, int64_t expert_width = 32)
      : config(config_of(expert_width)), model(testing::tiny_model(config, at::kFloat)) {
    write(storage, spelling);
  }
  void write(const Storage& storage, Spelling spelling) {
    write_checkpoint(folder / "model", config, model.weights,
                     {.spelling = spelling, .storage = storage, .replace = true});
  }
  LoadedWeights read(const Storage& wish) const {
    return read_weights(folder / "model", config, {.packed = true, .storage = wish});
  }
  std::map<std::string, at::Tensor> values() const {
    std::map<std::string, at::Tensor> result;
    const LoadedWeights loaded = read_weights(folder / "model", config, {.matrix_dtype = at::kFloat});
    model::for_each_weight(config, loaded.weights,
                           [&](const model::TensorSpec& spec, const ops::Matrix& w) { result[spec.name] = w.plain; });
    return result;
  }

  TemporaryFolder folder;
  model::Config config;
  model::Model model;
};

const Storage kReleased = {.experts = Form::fp4(), .dense = Form::fp8()};
const Storage kBase = {.experts = Form::fp8(at::kFloat), .dense = Form::fp8(at::kFloat)};

TEST(PackedWeights, AReleaseStaysAsItIsInEverySpelling) {
  for (const Storage& storage : {kReleased, kBase}) {
    for (const Spelling spelling : {Spelling::kNative, Spelling::kSavePretrained, Spelling::kModule}) {
      const StoredModel stored(storage, spelling);
      const LoadedWeights loaded = stored.read({});
      EXPECT_EQ(loaded.rounded.changed, 0);
      const auto values = stored.values();
      int64_t experts = 0, dense = 0;
      model::for_each_weight(stored.config, loaded.weights, [&](const model::TensorSpec& spec, const ops::Matrix& w) {
        const at::Tensor& want = values.at(spec.name);
        EXPECT_TRUE(at::equal(w.to(want.scalar_type()), want)) << spec.name;
        const TensorClass type = tensor_class(spec);
        EXPECT_EQ(w.packed.has_value(), type == TensorClass::kExperts || type == TensorClass::kDense) << spec.name;
        experts += type == TensorClass::kExperts ? w.bytes() : 0;
        dense += type == TensorClass::kDense ? w.bytes() : 0;
      });
      const auto bytes = model::bytes_by_storage(stored.config, loaded.weights);
      EXPECT_EQ(bytes.at("fp8") + (bytes.contains("fp4") ? bytes.at("fp4") : 0), experts + dense);
    }
  }
}

TEST(PackedWeights, AWishRoundsAndSaysByHowMuch) {
  const StoredModel stored({.experts = Form::plain(at::kBFloat16), .dense = Form::plain(at::kBFloat16)});
  EXPECT_EQ(stored.read({}).rounded.values, 0);
  const LoadedWeights loaded = stored.read(kReleased);
  const auto values = stored.values();
  double largest = 0.0;
  int64_t changed = 0;
  model::for_each_weight(stored.config, loaded.weights, [&](const model::TensorSpec& spec, const ops::Matrix& w) {
    const at::Tensor& want = values.at(spec.name);
    if (!w.packed) {
      EXPECT_TRUE(at::equal(w.plain.to(want.scalar_type()), want)) << spec.name;
      return;
    }
    const at::Tensor packed = ops::pack(want, w.packed->format, at::kByte, w.packed->parts).decode(at::kFloat);
    const at::Tensor found = w.to(at::kFloat);
    EXPECT_TRUE(at::equal(found, packed)) << spec.name;
    const at::Tensor kept = found.ne(0).logical_and(want.ne(0));
    const at::Tensor error = (found - want).abs().div(want.abs()).masked_select(kept);
    largest = std::max(largest, error.max().item<double>());
    changed += found.ne(want).sum().item<int64_t>();
  });
  EXPECT_EQ(loaded.rounded.changed, changed);
  EXPECT_NEAR(loaded.rounded.largest_relative, largest, 1e-5 * largest);
  EXPECT_GT(changed, 0);
  EXPECT_EQ(stored.read({.experts = Form::fp8()}).weights.layers[0].attention.attention.q_a_proj.weight.storage(),
            "bf16");
}

TEST(PackedWeights, ACodingThatIsThereIsKeptAndFp4BecomesFp8) {
  const StoredModel base(kBase);
  EXPECT_EQ(base.read({.experts = Form::fp8(), .dense = Form::fp8()}).rounded.changed, 0);
  const StoredModel released(kReleased);
  const LoadedWeights wide = released.read({.experts = Form::fp8(), .dense = Form::fp8()});
  const auto& down = wide.weights.layers[1].moe.moe.down.weight;
  EXPECT_EQ(down.storage(), "fp8");
  EXPECT_EQ(wide.rounded.changed, 0);
  EXPECT_TRUE(at::equal(down.to(at::kFloat), released.values().at("model.layers.1.mlp.experts.down_proj")));
}

TEST(PackedWeights, AModelWithPackedMatricesIsWrittenByItsValues) {
  const StoredModel stored(kReleased);
  const LoadedWeights loaded = stored.read({});
  write_checkpoint(stored.folder / "again", stored.config, loaded.weights);
  const auto values = stored.values();
  const LoadedWeights again = read_weights(stored.folder / "again", stored.config, {});
  model::for_each_weight(stored.config, again.weights, [&](const model::TensorSpec& spec, const ops::Matrix& w) {
    EXPECT_TRUE(at::equal(w.to(values.at(spec.name).scalar_type()), values.at(spec.name))) << spec.name;
  });
}

// The files are mapped: what is read must not stay in memory beside what it became.
TEST(PackedWeights, LoadingTakesTheMemoryOfTheWeights) {
  auto json = testing::tiny_config_json();
  const std::pair<const char*, int64_t> sizes[] = {
      {"hidden_size", 512}, {"moe_intermediate_size", 512}, {"n_routed_experts", 8}, {"vocab_size", 16384}};
  for (const auto& [key, value] : sizes) json[key] = value;
  const model::Config config = model::parse_config(json, "large");
  const TemporaryFolder folder;
  write_initial_checkpoint(folder / "model", config, 1, {.spelling = Spelling::kNative, .storage = kReleased});
  for (const bool packed : {true, false}) {
    ReadOptions options{.packed = packed};
    if (!packed) options.matrix_dtype = at::kBFloat16;
    if (!testing::restart_peak()) GTEST_SKIP() << "the peak cannot be reset here";
    const uint64_t before = resident_bytes();
    const LoadedWeights loaded = read_weights(folder / "model", config, options);
    const uint64_t peak = peak_resident_bytes() - before;
    int64_t weights = 0;
    for (const auto& [storage, bytes] : model::bytes_by_storage(config, loaded.weights)) weights += bytes;
    EXPECT_GT(weights, 40 << 20);
    // Headers and names of the files' tensors take a few MB, whatever the size of the tensors.
    EXPECT_LE(static_cast<double>(peak), 1.05 * static_cast<double>(weights) + (8 << 20)) << "packed: " << packed;
  }
}

TEST(PackedWeights, WhatCannotBeIsSaidWithTheTensor) {
  const StoredModel narrow({}, Spelling::kModule, 16);
  const std::string columns = error_of<InputError>([&] { narrow.read(kReleased); });
  EXPECT_NE(columns.find("model.layers.0.mlp.experts.down_proj' has 16 columns"), std::string::npos) << columns;
  EXPECT_NE(columns.find("model.storage: fp8 or auto"), std::string::npos) << columns;

  StoredModel damaged({}, Spelling::kModule);
  damaged.model.weights.layers[2].moe.moe.down.weight.plain[3][1][0] = NAN;
  damaged.write({}, Spelling::kModule);
  const std::string nan = error_of<RunError>([&] { damaged.read(kReleased); });
  EXPECT_NE(nan.find("tensor 'model.layers.2.mlp.experts.down_proj' holds NaN"), std::string::npos) << nan;
  EXPECT_THROW(read_weights(narrow.folder / "model", narrow.config, {.matrix_dtype = at::kFloat, .packed = true}),
               c10::Error);
}

}  // namespace
}  // namespace asterism::checkpoint
