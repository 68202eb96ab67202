#include "asterism/ops/dequant.h"

#include <gtest/gtest.h>

#include <cmath>

namespace asterism::ops {
namespace {

at::Tensor bytes(std::vector<int64_t> values, at::IntArrayRef shape) {
  return at::tensor(values, at::kLong).to(at::kByte).view(shape);
}

// One row of 32 columns that starts with the two values of `byte`.
at::Tensor first_pair(int64_t byte, int64_t scale) {
  std::vector<int64_t> row(16, 0);
  row[0] = byte;
  return dequant_fp4(bytes(row, {1, 16}), bytes({scale}, {1, 1}), at::kFloat)[0].narrow(0, 0, 2);
}

TEST(Fp4, LowNibbleComesFirst) {
  EXPECT_TRUE(at::equal(first_pair(0x72, 128), at::tensor({2.0F, 12.0F})));
  EXPECT_TRUE(at::equal(first_pair(0xA1, 127), at::tensor({0.5F, -1.0F})));
}

TEST(Fp4, EveryCodeWithEveryScaleIsExactInBothTypes) {
  const std::vector<double> magnitudes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<int64_t> row;  // columns 2 c and 2 c + 1 hold the code c
  for (int64_t code = 0; code < 16; ++code) row.push_back(code * 17);
  for (int64_t scale = 0; scale < 253; ++scale) {
    const at::Tensor packed = bytes(row, {1, 16}), scales = bytes({scale}, {1, 1});
    const at::Tensor single = dequant_fp4(packed, scales, at::kFloat)[0];
    EXPECT_TRUE(at::equal(dequant_fp4(packed, scales, at::kBFloat16)[0].to(at::kFloat), single)) << scale;
    for (int64_t column = 0; column < 32; ++column) {
      const int64_t code = column / 2;
      const double value = std::ldexp((code >= 8 ? -1 : 1) * magnitudes[code % 8], static_cast<int>(scale) - 127);
      ASSERT_EQ(static_cast<double>(single[column].item<float>()), value) << "code " << code << " scale " << scale;
    }
  }
}

TEST(Fp4, EveryBlockOf32ColumnsHasItsScale) {
  const at::Tensor ones = at::full({2, 32}, 0x22, at::kByte);
  const at::Tensor out = dequant_fp4(ones, bytes({127, 128, 129, 130}, {2, 2}), at::kBFloat16).to(at::kFloat);
  const at::Tensor expected = at::tensor({1.0F, 2.0F, 4.0F, 8.0F}).view({2, 2}).repeat_interleave(32, 1);
  EXPECT_TRUE(at::equal(out, expected));
}

TEST(Fp8, EveryCodeFollowsTheFormat) {
  for (int code = 0; code < 256; ++code) {
    const float value = decode_e4m3(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << code;
      continue;
    }
    const int exponent = code >> 3 & 15;
    const double fraction = (code & 7) / 8.0;
    const double magnitude =
        exponent == 0 ? fraction * std::pow(2.0, -6) : (1 + fraction) * std::pow(2.0, exponent - 7);
    EXPECT_EQ(static_cast<double>(value), code >= 128 ? -magnitude : magnitude) << code;
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
  EXPECT_EQ(decode_e4m3(0x7E), 448.0F);
  EXPECT_EQ(decode_e4m3(0x01), std::ldexp(1.0F, -9));
}

TEST(Fp8, CodesAgreeWithTheFrameworksType) {
  const at::Tensor codes = at::arange(256, at::kInt).to(at::kByte).view({2, 128});
  const at::Tensor expected = codes.view(at::kFloat8_e4m3fn).to(at::kFloat);
  const at::Tensor out = dequant_fp8(codes, bytes({127}, {1, 1}), at::kFloat);
  EXPECT_TRUE(at::allclose(out, expected, 0.0, 0.0, /*equal_nan=*/true));
}

TEST(Fp8, EveryBlockOf128RowsAndColumnsHasItsScale) {
  const at::Tensor ones = at::full({256, 128}, 0x38, at::kByte);
  const at::Tensor out = dequant_fp8(ones, at::tensor({2.0F, 4.0F}).view({2, 1}), at::kFloat);
  EXPECT_TRUE(at::equal(out.narrow(0, 0, 128), at::full({128, 128}, 2.0F)));
  EXPECT_TRUE(at::equal(out.narrow(0, 128, 128), at::full({128, 128}, 4.0F)));
  // Partial blocks at both edges.
  const at::Tensor edge =
      dequant_fp8(at::full({130, 131}, 0x38, at::kByte), bytes({127, 128, 129, 130}, {2, 2}), at::kBFloat16);
  EXPECT_EQ(edge[127][127].item<float>(), 1.0F);
  EXPECT_EQ(edge[127][128].item<float>(), 2.0F);
  EXPECT_EQ(edge[128][127].item<float>(), 4.0F);
  EXPECT_EQ(edge[129][130].item<float>(), 8.0F);
}

TEST(Fp8, FullPrecisionScaleIsRoundedOnce) {
  const at::Tensor code = bytes({0x3F}, {1, 1});  // 1.875
  const at::Tensor scale = at::full({1, 1}, 1.1045F);
  EXPECT_EQ(dequant_fp8(code, scale, at::kFloat).item<float>(), 1.875F * 1.1045F);
  // The product is 132.54 / 64; a scale rounded to bf16 first would give 132.19 / 64.
  EXPECT_EQ(dequant_fp8(code, scale, at::kBFloat16).item<float>(), 133.0F / 64.0F);
}

TEST(E8m0, IsAPowerOfTwoWithoutZero) {
  for (int byte = 0; byte < 255; ++byte) {
    EXPECT_EQ(static_cast<double>(decode_e8m0(static_cast<uint8_t>(byte))), std::pow(2.0, byte - 127)) << byte;
  }
  EXPECT_TRUE(std::isnan(decode_e8m0(255)));
}

TEST(Dequant, RefusesScalesOfAnotherGranularity) {
  const at::Tensor weight = at::zeros({256, 256}, at::kByte);
  EXPECT_THROW(dequant_fp8(weight, at::ones({1, 1}), at::kFloat), c10::Error);
  EXPECT_THROW(dequant_fp8(weight, at::zeros({256, 8}, at::kByte), at::kFloat), c10::Error);
  EXPECT_THROW(dequant_fp4(weight, at::zeros({2, 4}, at::kByte), at::kFloat), c10::Error);
  EXPECT_THROW(dequant_fp4(weight.to(at::kFloat), at::zeros({256, 16}, at::kByte), at::kFloat), c10::Error);
  EXPECT_THROW(dequant_fp8(weight, at::ones({2, 2}), at::kDouble), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
