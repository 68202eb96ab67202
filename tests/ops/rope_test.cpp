#include "asterism/ops/rope.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using testing::Inputs;
using testing::Outputs;
using testing::random_tensor;

RopeTable table(int64_t width, const at::Tensor& position_M, at::ScalarType type = at::kDouble) {
  return make_rope_table({.width = width, .theta = 100.0}, position_M, type);
}

struct ReferenceTables {
  std::string name;
  RopeConfig main, compress;
};

std::vector<ReferenceTables> reference_tables() {
  return {{"all_paths",
           {.width = 8, .theta = 10000.0},
           {.width = 8, .theta = 160000.0, .yarn = true, .factor = 16, .original_max_positions = 4096}},
          {"odd_dims",
           {.width = 12, .theta = 5000.0},
           {.width = 12,
            .theta = 40000.0,
            .yarn = true,
            .factor = 4,
            .original_max_positions = 1024,
            .beta_fast = 16,
            .beta_slow = 2}},
          {"real_head",
           {.width = 64, .theta = 10000.0},
           {.width = 64, .theta = 160000.0, .yarn = true, .factor = 16, .original_max_positions = 65536}}};
}

// One tensor of a safetensors file: 8 bytes header length, JSON header, data.
at::Tensor stored(const std::string& bytes, const std::string& name) {
  uint64_t header_size = 0;
  std::memcpy(&header_size, bytes.data(), 8);
  const auto entry = nlohmann::json::parse(bytes.substr(8, header_size)).at(name);
  const auto type = entry.at("dtype") == "I64" ? at::kLong : at::kDouble;
  at::Tensor out = at::empty(entry.at("shape").get<std::vector<int64_t>>(), type);
  const auto offsets = entry.at("data_offsets").get<std::vector<uint64_t>>();
  std::memcpy(out.mutable_data_ptr(), bytes.data() + 8 + header_size + offsets[0], offsets[1] - offsets[0]);
  return out;
}

TEST(Rope, FrequenciesAndTablesEqualTheReference) {
  for (const ReferenceTables& reference : reference_tables()) {
    SCOPED_TRACE(reference.name);
    std::ifstream file(
        std::filesystem::path(ASTERISM_SOURCE_DIR) / "tests/golden/ref" / reference.name / "rope.safetensors",
        std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    ASSERT_GT(bytes.size(), 8U) << "the reference file is missing";
    const at::Tensor positions = stored(bytes, "positions");
    for (const std::string kind : {"main", "compress"}) {
      SCOPED_TRACE(kind);
      const RopeConfig& config = kind == "main" ? reference.main : reference.compress;
      const at::Tensor frequencies = stored(bytes, "value." + kind + ".frequencies");
      EXPECT_TRUE(at::allclose(rope_frequencies(config), frequencies, 1e-13, 0.0));
      const RopeTable made = make_rope_table(config, positions, at::kDouble);
      // At a million radians the last bit of a frequency is worth 1e-10.
      EXPECT_LT((made.cos - stored(bytes, "value." + kind + ".cos")).abs().max().item<double>(), 1e-9);
      EXPECT_LT((made.sin - stored(bytes, "value." + kind + ".sin")).abs().max().item<double>(), 1e-9);
    }
  }
}

TEST(Rope, TurnsInterleavedPairsOfTheLastChannelsAndCopiesTheRest) {
  const at::Tensor x = random_tensor({3, 7}, "x"), before = x.clone();
  const RopeTable t = table(4, at::tensor({0, 1, 5}, at::kLong));
  const at::Tensor y = rope(x, t);
  EXPECT_TRUE(at::equal(x, before));
  EXPECT_TRUE(at::equal(y.narrow(1, 0, 3), x.narrow(1, 0, 3)));
  EXPECT_TRUE(at::equal(y[0], x[0]));
  const std::vector<double> frequencies = {1.0, 0.1};
  for (int64_t i = 0; i < 2; ++i) {
    const double angle = 5.0 * frequencies[i];
    const double a = x[2][3 + 2 * i].item<double>(), b = x[2][4 + 2 * i].item<double>();
    EXPECT_NEAR(y[2][3 + 2 * i].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-14);
    EXPECT_NEAR(y[2][4 + 2 * i].item<double>(), a * std::sin(angle) + b * std::cos(angle), 1e-14);
  }
}

TEST(Rope, HeadsOfATokenTurnAlike) {
  const at::Tensor x = random_tensor({4, 3, 6}, "x");
  const RopeTable t = table(6, at::arange(4, at::kLong));
  for (int64_t head = 0; head < 3; ++head) {
    EXPECT_TRUE(at::equal(rope(x, t).select(1, head), rope(x.select(1, head), t)));
  }
}

TEST(Rope, InverseUndoesTheRotation) {
  const at::Tensor x = random_tensor({5, 2, 10}, "x");
  const RopeTable t = table(8, at::tensor({0, 1, 77, 4095, 1048575}, at::kLong));
  EXPECT_LT((rope(rope(x, t), t, /*inverse=*/true) - x).abs().max().item<double>(), 1e-14);
  EXPECT_GT((rope(rope(x, t), t) - x).abs().max().item<double>(), 0.1);
}

TEST(Rope, GradientsMatchFiniteDifferences) {
  for (const bool inverse : {false, true}) {
    for (const int64_t rows : {0, 1, 3}) {
      const RopeTable t = table(4, at::arange(rows, at::kLong) + 2);
      const auto turn = [&](const Inputs& in) -> Outputs { return {rope(in[0], t, inverse)}; };
      testing::expect_gradients_match(turn, {random_tensor({rows, 5}, "x").requires_grad_(true)});
      testing::expect_gradients_match(turn, {random_tensor({rows, 2, 6}, "x").requires_grad_(true)});
    }
  }
}

TEST(Rope, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  const RopeTable single = table(16, at::arange(6, at::kLong) * 100, at::kFloat);
  const auto turn = [&](const Inputs& in) -> Outputs { return {rope(in[0], single)}; };
  testing::expect_all_precisions(turn, {random_tensor({6, 2, 24}, "x").requires_grad_(true)}, 1);
  EXPECT_EQ(rope(at::ones({6, 24}, at::kBFloat16), single).scalar_type(), at::kBFloat16);
}

TEST(Rope, RefusesATableOfAnotherLength) {
  const RopeTable t = table(4, at::arange(3, at::kLong));
  EXPECT_THROW(rope(at::ones({2, 8}), t), c10::Error);
  EXPECT_THROW(rope(at::ones({3, 2}), t), c10::Error);
  EXPECT_THROW(rope_frequencies({.width = 5}), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
