#include "asterism/ops/quantize.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "asterism/ops/cpu/float_codes.h"
#include "asterism/ops/cpu/float_kernel.h"
#include "asterism/ops/dequant.h"

namespace asterism::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Every value with its neighbours, every midpoint of two values with its neighbours, and what lies beyond.
std::vector<float> probes(const std::vector<float>& values) {
  std::vector<float> points = {0.0F, 1e-45F, 1e-38F, 3e38F, 500.0F, 1e5F};
  const auto add = [&](float value) {
    points.insert(points.end(), {std::nextafter(value, 0.0F), value, std::nextafter(value, kInf)});
  };
  for (size_t i = 0; i < values.size(); ++i) {
    add(values[i]);
    if (i > 0) add((values[i] + values[i - 1]) / 2);
  }
  for (size_t i = 0, count = points.size(); i < count; ++i) points.push_back(-points[i]);
  return points;
}

/// The index of the value nearest to |x|, the even one of two equally near ones: the definition, slowly.
int nearest_code(const std::vector<float>& values, float x) {
  const double magnitude = std::min(1e6, std::fabs(static_cast<double>(x)));  // distances stay exact
  int best = 0;
  for (int code = 1; code < static_cast<int>(values.size()); ++code) {
    const double before = std::fabs(magnitude - static_cast<double>(values[best]));
    const double now = std::fabs(magnitude - static_cast<double>(values[code]));
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

std::vector<float> e4m3_values() {
  std::vector<float> values;
  for (int code = 0; code < 0x7F; ++code) values.push_back(decode_e4m3(static_cast<uint8_t>(code)));
  return values;
}

const std::vector<float> kE2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

/// Values as a matrix of `columns`, filled up with zeros.
at::Tensor matrix(std::vector<float> values, int64_t columns) {
  values.resize((values.size() + columns - 1) / columns * columns, 0.0F);
  return at::tensor(values).view({-1, columns});
}

at::Tensor round_trip_fp8(const at::Tensor& w, ScaleType type) {
  const QuantizedMatrix q = quantize_fp8(w, type);
  return dequant_fp8(q.bytes, q.scale, at::kFloat);
}

at::Tensor round_trip_fp4(const at::Tensor& w) {
  const QuantizedMatrix q = quantize_fp4(w);
  return dequant_fp4(q.bytes, q.scale, at::kFloat);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.view(at::kInt), b.view(at::kInt));
}

TEST(FloatCodes, E4m3RoundsToNearestEvenAndSaturates) {
  const std::vector<float> values = e4m3_values();
  for (const float x : probes(values)) {
    const int sign = std::signbit(x) ? 0x80 : 0;
    ASSERT_EQ(cpu::e4m3_code(x), nearest_code(values, x) + sign) << x;
  }
  EXPECT_EQ(cpu::e4m3_code(kInf), 0x7E);
  EXPECT_EQ(cpu::e4m3_code(-kInf), 0xFE);
  EXPECT_EQ(cpu::e4m3_code(kNan), 0x7F);
  EXPECT_EQ(cpu::e4m3_code(-0.0F), 0x80);
}

TEST(FloatCodes, E2m1RoundsToNearestEvenAndSaturates) {
  for (const float x : probes(kE2m1)) {
    ASSERT_EQ(cpu::e2m1_code(x), nearest_code(kE2m1, x) + (std::signbit(x) ? 8 : 0)) << x;
  }
  EXPECT_EQ(cpu::e2m1_code(kInf), 7);
  EXPECT_EQ(cpu::e2m1_code(-kInf), 15);
  EXPECT_EQ(cpu::e2m1_code(kNan), 0);
}

// Every bf16 and every half as a start, with the midpoints to the next one and its neighbours.
TEST(FloatCodes, Bf16AndHalfAgreeWithTheFramework) {
  std::vector<float> points = {kInf, -kInf, kNan, 65504.0F, 65519.996F, 65520.0F, 1e-45F, -1e-45F, 0.0F, -0.0F};
  for (int code = 0; code < 0x10000; ++code) {
    const float bf16 = cpu::bf16_value(static_cast<uint16_t>(code));
    const float half = cpu::half_value(static_cast<uint16_t>(code));
    if (std::isnan(half)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(at::Half(static_cast<uint16_t>(code), at::Half::from_bits()))));
    } else {
      ASSERT_EQ(half, static_cast<float>(at::Half(static_cast<uint16_t>(code), at::Half::from_bits()))) << code;
    }
    for (const uint32_t offset : {0U, 0x7FFFU, 0x8000U, 0x8001U}) {
      points.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(bf16) + offset));
    }
    for (const uint32_t offset : {0U, 0x0FFFU, 0x1000U, 0x1001U}) {
      points.push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(half) + offset));
    }
  }
  const float smallest = 0x1p-24F;
  for (int k = 0; k < 4096; ++k) {
    for (const float x : {smallest * k, smallest * (k + 0.5F), std::nextafter(smallest * (k + 0.5F), 0.0F)}) {
      points.push_back(x);
    }
  }
  for (const float x : points) {
    ASSERT_EQ(cpu::bf16_code(x), at::BFloat16(x).x) << x;
    if (!std::isnan(x)) {
      ASSERT_EQ(cpu::half_code(x), at::Half(x).x) << x;
    }
  }
  EXPECT_EQ(cpu::half_code(kNan) & 0x7FFF, 0x7E00);
}

TEST(ValueChanges, CountsWhatDiffersAndTheLargestShare) {
  std::vector<float> before(1000, 3.0F), after = before;
  const auto same = cpu::value_changes(before.data(), after.data(), 1000);
  EXPECT_EQ(same.changed + same.vanished, 0);
  EXPECT_EQ(same.largest_relative, 0.0F);
  before[3] = after[3] = kNan;
  before[5] = 0.0F;
  after[5] = -0.0F;
  after[10] = 0.0F;
  after[500] = 4.5F;
  after[999] = 2.0F;
  const auto changes = cpu::value_changes(before.data(), after.data(), 1000);
  EXPECT_EQ(changes.changed, 3);
  EXPECT_EQ(changes.vanished, 1);
  EXPECT_EQ(changes.largest_relative, 0.5F);
}

TEST(QuantizeFp8, MatricesRoundAsSingleValuesDo) {
  std::vector<float> points = probes(e4m3_values());
  std::erase_if(points, [](float x) { return std::fabs(x) > 448.0F; });
  points.push_back(448.0F);  // the scale becomes 1
  const at::Tensor w = matrix(points, 128);
  ASSERT_LE(w.size(0), 128);
  const QuantizedMatrix q = quantize_fp8(w, ScaleType::kE8m0);
  ASSERT_EQ(q.scale.item<uint8_t>(), 127);
  for (size_t i = 0; i < points.size(); ++i) {
    ASSERT_EQ(q.bytes.view({-1})[i].item<uint8_t>(), cpu::e4m3_code(points[i])) << points[i];
  }
}

TEST(QuantizeFp8, TheScaleIsTheSmallestPowerOfTwoThatHolds448) {
  const auto scale = [](float amax) {
    return static_cast<int>(quantize_fp8(at::full({1, 1}, amax), ScaleType::kE8m0).scale.item<uint8_t>());
  };
  EXPECT_EQ(scale(448.0F), 127);
  EXPECT_EQ(scale(std::nextafter(448.0F, kInf)), 128);
  EXPECT_EQ(scale(std::nextafter(448.0F, 0.0F)), 127);
  EXPECT_EQ(scale(224.0F), 126);
  EXPECT_EQ(scale(-896.0F), 128);
  EXPECT_EQ(scale(3e38F), 247);
  for (int exponent = -20; exponent < 100; ++exponent) {
    EXPECT_EQ(scale(std::ldexp(448.0F, exponent)), 127 + exponent);
    EXPECT_EQ(scale(std::nextafter(std::ldexp(448.0F, exponent), kInf)), 128 + exponent);
  }
  // amax is at least 1e-4: 2^ceil(log2(1e-4 / 448)) = 2^-22.
  EXPECT_EQ(scale(0.0F), 127 - 22);
  EXPECT_EQ(scale(3.3e-6F), 127 - 22);
}

TEST(QuantizeFp8, EveryBlockHasItsScaleAtPartialEdgesToo) {
  at::Tensor w = at::zeros({130, 131});
  w[0][0] = 448.0F;
  w[127][128] = 896.0F;
  w[129][127] = -1792.0F;
  w[128][130] = 3584.0F;
  const QuantizedMatrix q = quantize_fp8(w, ScaleType::kE8m0);
  const at::Tensor expected = at::tensor({127, 128, 129, 130}, at::kLong).to(at::kByte).view({2, 2});
  EXPECT_TRUE(at::equal(q.scale, expected));
  EXPECT_TRUE(at::equal(dequant_fp8(q.bytes, q.scale, at::kFloat), w));
  const QuantizedMatrix v3 = quantize_fp8(w, ScaleType::kFp32);
  EXPECT_TRUE(at::equal(v3.scale, at::tensor({1.0F, 2.0F, 4.0F, 8.0F}).view({2, 2})));
}

TEST(QuantizeFp8, WhatWasFp8KeepsItsBitsUnderEveryScale) {
  const at::Tensor codes = at::arange(256, at::kInt).to(at::kByte).view({2, 128});
  const at::Tensor finite = codes.bitwise_and(0x7F).ne(0x7F);
  for (int byte = 0; byte <= 246; ++byte) {  // 448 * 2^120 and more are infinite in fp32
    const at::Tensor w = dequant_fp8(codes, at::full({1, 1}, byte, at::kByte), at::kFloat).where(finite, 0.0F);
    ASSERT_TRUE(same_bits(round_trip_fp8(w, ScaleType::kE8m0), w)) << byte;
    if (byte < 105 - 7) continue;
    const QuantizedMatrix q = quantize_fp8(w, ScaleType::kE8m0);
    EXPECT_EQ(q.scale.item<uint8_t>(), byte);
    EXPECT_TRUE(at::equal(q.bytes.where(finite, codes), codes)) << byte;
  }
}

// 448 S is rounded, so S is not always amax / 448: a scale beside it gives the values back.
TEST(QuantizeFp8, WhatHadFp32ScalesKeepsItsBits) {
  const at::Tensor codes = at::arange(256, at::kInt).to(at::kByte).view({2, 128});
  const at::Tensor finite = codes.bitwise_and(0x7F).ne(0x7F);
  int neighbours = 0;
  for (int i = 0; i < 2000; ++i) {
    const float scale = std::ldexp(1.0F + i * 0.00049F, i % 50 - 30);
    const at::Tensor w = dequant_fp8(codes, at::full({1, 1}, scale), at::kFloat).where(finite, 0.0F);
    ASSERT_TRUE(same_bits(round_trip_fp8(w, ScaleType::kFp32), w)) << scale;
    neighbours += w.abs().max().item<float>() / 448.0F != scale ? 1 : 0;
  }
  EXPECT_GT(neighbours, 0);
}

TEST(QuantizeFp4, MatricesRoundAsSingleValuesDo) {
  for (const float x : probes(kE2m1)) {
    if (std::fabs(x) > 6.0F) continue;
    const QuantizedMatrix q = quantize_fp4(matrix({x, 6.0F}, 32));
    ASSERT_EQ(q.scale.item<uint8_t>(), 127);
    ASSERT_EQ(q.bytes[0][0].item<uint8_t>(), cpu::e2m1_code(x) | 0x70) << x;  // the first value in the low half
  }
}

TEST(QuantizeFp4, ScalesFollowTheRule) {
  const auto scale = [](float amax) {
    return static_cast<int>(quantize_fp4(at::full({1, 32}, amax)).scale.item<uint8_t>());
  };
  for (int exponent = -126; exponent < 124; ++exponent) {
    EXPECT_EQ(scale(std::ldexp(6.0F, exponent)), 127 + exponent);
    EXPECT_EQ(scale(std::nextafter(std::ldexp(6.0F, exponent), kInf)), 128 + exponent);
  }
  EXPECT_EQ(scale(0.0F), 1);
  EXPECT_EQ(scale(1e-45F), 1);
}

TEST(QuantizeFp4, WhatWasFp4KeepsItsBits) {
  std::vector<int64_t> row;
  for (int64_t code = 0; code < 16; ++code) row.push_back(code * 17);
  const at::Tensor codes = at::tensor(row, at::kLong).to(at::kByte).view({1, 16});
  for (int byte = 1; byte <= 252; ++byte) {
    const at::Tensor scale = at::full({1, 1}, byte, at::kByte);
    const at::Tensor w = dequant_fp4(codes, scale, at::kFloat);
    const QuantizedMatrix q = quantize_fp4(w);
    ASSERT_TRUE(at::equal(q.bytes, codes)) << byte;
    ASSERT_EQ(q.scale.item<uint8_t>(), byte);
    // Without the code 6 the scale is not determined; the values are.
    for (int64_t only = 0; only < 8; ++only) {
      const at::Tensor few = dequant_fp4(at::full({1, 16}, only * 17, at::kByte), scale, at::kFloat);
      ASSERT_TRUE(same_bits(round_trip_fp4(few), few)) << byte << " " << only;
    }
  }
}

TEST(RecodeFp4, IsExactOverFourteenPowersOfTwo) {
  std::vector<int64_t> row;
  for (int64_t code = 0; code < 16; ++code) row.push_back(code * 17);
  const at::Tensor line = at::tensor(row, at::kLong).to(at::kByte).view({1, 16});
  // Fifteen rows of one block with scales 2^-7 ... 2^7: the largest is 2^14 times the smallest.
  const at::Tensor codes = line.repeat({15, 4});
  const at::Tensor scales = at::arange(15).add(120).to(at::kByte).view({15, 1}).repeat({1, 4});
  const RecodedMatrix recoded = recode_fp4_as_fp8({codes, scales});
  EXPECT_EQ(recoded.changed, 0);
  EXPECT_EQ(recoded.matrix.scale.item<uint8_t>(), 134 - 6);
  EXPECT_TRUE(same_bits(dequant_fp8(recoded.matrix.bytes, recoded.matrix.scale, at::kFloat),
                        dequant_fp4(codes, scales, at::kFloat)));
}

// Every code under every pair of scales, by its value: the exact way and the rounding one give what the formats say.
TEST(RecodeFp4, EveryCodeKeepsItsValueAndItsSignWhereThatIsPossible) {
  std::vector<int64_t> row;
  for (int64_t byte = 0; byte < 256; ++byte) row.push_back(byte);
  const at::Tensor codes = at::tensor(row, at::kLong).to(at::kByte).view({1, 256}).repeat({2, 1});
  for (const int64_t largest : {0, 3, 6, 7, 100, 250}) {
    for (const int64_t below : {0, 1, 6, 13, 14, 15, 20}) {
      if (below > largest) continue;
      const at::Tensor scales =
          at::tensor({largest, largest - below}, at::kLong).to(at::kByte).view({2, 1}).repeat({1, 16});
      const at::Tensor want = dequant_fp4(codes, scales, at::kFloat);
      const RecodedMatrix recoded = recode_fp4_as_fp8({codes, scales});
      const at::Tensor got = dequant_fp8(recoded.matrix.bytes, recoded.matrix.scale, at::kFloat);
      EXPECT_EQ(recoded.changed, got.ne(want).sum().item<int64_t>()) << largest << " " << below;
      EXPECT_EQ(recoded.changed > 0, std::max<int64_t>(largest, 6) - (largest - below) > 14) << largest << " " << below;
      EXPECT_TRUE(at::equal(got.signbit(), want.signbit())) << largest << " " << below;
    }
  }
}

TEST(RecodeFp4, CountsWhatIsLostBeyondThat) {
  const at::Tensor codes = at::full({2, 16}, 0x11, at::kByte);  // 0.5 everywhere
  const at::Tensor scales = at::tensor({120, 135}, at::kLong).to(at::kByte).view({2, 1});
  EXPECT_EQ(recode_fp4_as_fp8({codes, scales}).changed, 32);  // 2^-8 is half of the smallest step, and rounds to 0
  const at::Tensor nan = at::tensor({120, 255}, at::kLong).to(at::kByte).view({2, 1});
  EXPECT_THROW(recode_fp4_as_fp8({codes, nan}), c10::Error);
}

TEST(RecodeFp4, LowScalesStayInRange) {
  const at::Tensor codes = at::full({1, 16}, 0x71, at::kByte);
  const at::Tensor scales = at::full({1, 1}, 3, at::kByte);
  const RecodedMatrix recoded = recode_fp4_as_fp8({codes, scales});
  EXPECT_EQ(recoded.changed, 0);
  EXPECT_EQ(recoded.matrix.scale.item<uint8_t>(), 0);
}

TEST(Quantize, BitsDoNotDependOnTheNumberOfThreads) {
  const at::Tensor w = at::sin(at::arange(1000 * 352, at::kDouble) * 0.37).to(at::kFloat).view({1000, 352}) * 0.02F;
  const int before = at::get_num_threads();
  std::vector<at::Tensor> results[2];
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    const QuantizedMatrix fp8 = quantize_fp8(w, ScaleType::kE8m0), v3 = quantize_fp8(w, ScaleType::kFp32);
    const QuantizedMatrix fp4 = quantize_fp4(w);
    const QuantizedMatrix recoded = recode_fp4_as_fp8(fp4).matrix;
    results[threads == 1 ? 0 : 1] = {fp8.bytes, fp8.scale, v3.bytes,      v3.scale,
                                     fp4.bytes, fp4.scale, recoded.bytes, recoded.scale};
  }
  at::set_num_threads(before);
  for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << i;
}

TEST(Quantize, RefusesWhatTheFormatsCannotHold) {
  for (const float value : {kNan, kInf, -kInf}) {
    at::Tensor w = at::ones({2, 32});
    w[1][3] = value;
    EXPECT_THROW(quantize_fp8(w, ScaleType::kE8m0), c10::Error);
    EXPECT_THROW(quantize_fp8(w, ScaleType::kFp32), c10::Error);
    EXPECT_THROW(quantize_fp4(w), c10::Error);
  }
  EXPECT_THROW(quantize_fp4(at::ones({2, 48})), c10::Error);
  EXPECT_THROW(quantize_fp8(at::ones({4}), ScaleType::kE8m0), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
