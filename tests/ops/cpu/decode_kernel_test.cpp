#include "asterism/ops/cpu/decode_kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace asterism::ops::cpu {
namespace {

// The formats in words of their own, in fp64.
double fp8(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return std::nan("");
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(1.0 + mantissa / 8.0, exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
}
double fp4(int code) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kMagnitudes[code & 7] : kMagnitudes[code & 7];
}
double e8m0(int byte) {
  return byte == 255 ? std::nan("") : std::ldexp(1.0, byte - 127);
}

float bf16_value(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

void expect_same(double found, double expected, const std::string& where) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(found)) << where;
  } else {
    EXPECT_EQ(found, static_cast<double>(static_cast<float>(expected))) << where;
    EXPECT_EQ(std::signbit(found), std::signbit(expected)) << where;
  }
}

TEST(DecodeKernel, EveryFp8CodeWithEveryE8m0Scale) {
  std::vector<uint8_t> codes(256);
  for (int code = 0; code < 256; ++code) codes[code] = static_cast<uint8_t>(code);
  for (int scale = 0; scale < 256; ++scale) {
    const uint8_t scales[2] = {static_cast<uint8_t>(scale), static_cast<uint8_t>(scale)};
    std::vector<float> single(256);
    std::vector<double> wide(256);
    std::vector<uint16_t> half(256);
    decode_fp8_row(codes.data(), scales, 0, 256, single.data());
    decode_fp8_row(codes.data(), scales, 0, 256, wide.data());
    decode_fp8_row(codes.data(), scales, 0, 256, half.data());
    for (int code = 0; code < 256; ++code) {
      const std::string where = "code " + std::to_string(code) + " scale " + std::to_string(scale);
      expect_same(static_cast<double>(single[code]), fp8(code) * e8m0(scale), where);
      expect_same(wide[code], fp8(code) * e8m0(scale), where);
      // Below 2^-133 a bf16 has fewer bits than the code.
      if (scale > 10) expect_same(static_cast<double>(bf16_value(half[code])), fp8(code) * e8m0(scale), where);
    }
  }
}

TEST(DecodeKernel, EveryFp4CodeWithEveryScale) {
  std::vector<uint8_t> pairs(16);
  for (int i = 0; i < 16; ++i) pairs[i] = static_cast<uint8_t>(i | (15 - i) << 4);
  for (int scale = 0; scale < 256; ++scale) {
    const auto byte = static_cast<uint8_t>(scale);
    std::vector<float> single(32);
    std::vector<uint16_t> half(32);
    decode_fp4_row(pairs.data(), &byte, 0, 32, single.data());
    decode_fp4_row(pairs.data(), &byte, 0, 32, half.data());
    for (int c = 0; c < 32; ++c) {
      const double expected = fp4(c % 2 == 0 ? c / 2 : 15 - c / 2) * e8m0(scale);
      const std::string where = "column " + std::to_string(c) + " scale " + std::to_string(scale);
      expect_same(static_cast<double>(single[c]), expected, where);
      expect_same(static_cast<double>(bf16_value(half[c])), expected, where);
    }
  }
}

TEST(DecodeKernel, AnyRangeOfColumnsIsThatPartOfTheRow) {
  constexpr int64_t kColumns = 1344;  // longer than the stretch that FP4 unpacks at once, no multiple of 128
  std::vector<uint8_t> codes(kColumns), scales(kColumns / 32);
  for (int64_t i = 0; i < kColumns; ++i) codes[i] = static_cast<uint8_t>(i * 37 % 127 + i % 2 * 128);  // no NaN
  for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<uint8_t>(120 + i % 9);
  std::vector<float> wide_scales;
  for (const uint8_t scale : scales) wide_scales.push_back(static_cast<float>(e8m0(scale)) * 1.3F);
  std::vector<float> fp8_row(kColumns), fp4_row(kColumns), scaled_row(kColumns);
  decode_fp8_row(codes.data(), scales.data(), 0, kColumns, fp8_row.data());
  decode_fp8_row(codes.data(), wide_scales.data(), 0, kColumns, scaled_row.data());
  decode_fp4_row(codes.data(), scales.data(), 0, kColumns, fp4_row.data());
  for (int64_t c = 0; c < kColumns; ++c) {
    const int pair = codes[c / 2];
    EXPECT_EQ(static_cast<double>(fp8_row[c]), fp8(codes[c]) * e8m0(scales[c / 128])) << c;
    EXPECT_EQ(scaled_row[c], static_cast<float>(fp8(codes[c])) * wide_scales[c / 128]) << c;
    EXPECT_EQ(static_cast<double>(fp4_row[c]), fp4(c % 2 == 0 ? pair & 15 : pair >> 4) * e8m0(scales[c / 32])) << c;
  }
  for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 2}, {16, 32}, {30, 34}, {112, 144}, {500, 1100}, {1328, 1344}, {7, 7}}) {
    std::vector<float> part(end - begin + 1, -1.0F);
    decode_fp8_row(codes.data(), scales.data(), begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, fp8_row.begin() + begin)) << begin;
    EXPECT_EQ(part.back(), -1.0F);
    if (begin % 2 != 0) continue;
    decode_fp4_row(codes.data(), scales.data(), begin, end, part.data());
    EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, fp4_row.begin() + begin)) << begin;
    EXPECT_EQ(part.back(), -1.0F);
  }
}

TEST(DecodeKernel, Bf16IsRoundedOnceToNearestEven) {
  const uint8_t codes[3] = {0x38, 0xB8, 0x3F};  // 1, -1, 1.875
  const auto rounded = [&](float scale) {
    uint16_t out[3];
    decode_fp8_row(codes, &scale, 0, 3, out);
    return std::vector<float>{bf16_value(out[0]), bf16_value(out[1]), bf16_value(out[2])};
  };
  EXPECT_EQ(rounded(1.0F + 0x1p-8F), (std::vector<float>{1.0F, -1.0F, 1.8828125F}));            // a tie goes down
  EXPECT_EQ(rounded(1.0F + 0x3p-8F), (std::vector<float>{1.015625F, -1.015625F, 1.8984375F}));  // a tie goes up
}

}  // namespace
}  // namespace asterism::ops::cpu
