#include "asterism/ops/cpu/encode_kernel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "asterism/ops/cpu/decode_kernel.h"
#include "asterism/ops/cpu/float_codes.h"

namespace asterism::ops::cpu {

namespace {

constexpr int64_t kFp8Block = 128;
constexpr int64_t kFp4Block = 32;
constexpr uint32_t kInfinity = 0x7F800000;

/// Rows row .. row_end - 1, columns column .. column_end - 1 of a matrix.
struct Block {
  const float* values;
  int64_t stride;
  int64_t row, row_end, column, column_end;
};

/// The largest finite magnitude as fp32 bits, which are ordered as the magnitudes are.
uint32_t largest_bits(const float* values, int64_t count, bool& finite) {
  uint32_t largest = 0, all = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t absolute = std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF;
    all = std::max(all, absolute);
    largest = std::max(largest, absolute < kInfinity ? absolute : 0);
  }
  finite &= all < kInfinity;
  return largest;
}

float largest_magnitude(const Block& block, bool& finite) {
  uint32_t largest = 0;
  for (int64_t row = block.row; row < block.row_end; ++row) {
    const float* values = block.values + row * block.stride + block.column;
    largest = std::max(largest, largest_bits(values, block.column_end - block.column, finite));
  }
  return std::bit_cast<float>(largest);
}

/// The e8m0 byte of the smallest power of two S with S * top >= amax, from the bits: no division, no logarithm that
/// could round across a power of two. `top` has the exponent field `exponent` and the mantissa `mantissa`.
uint8_t power_of_two_scale(float amax, uint32_t exponent, uint32_t mantissa) {
  const uint32_t bits = std::bit_cast<uint32_t>(amax);
  const uint32_t above = (bits & 0x7FFFFF) > mantissa ? 1 : 0;
  const uint32_t field = (bits >> 23) + above + 127;
  return static_cast<uint8_t>(field > exponent ? field - exponent : 0);
}

uint8_t fp8_scale(float amax) {  // 448 = 1.75 * 2^8
  return power_of_two_scale(amax, 127 + 8, 0x600000);
}

uint8_t fp4_scale(float amax) {  // 6 = 1.5 * 2^2
  return power_of_two_scale(amax, 127 + 2, 0x400000);
}

// The inverse of a power of two is one, so the product is the quotient.
void encode_row(const float* values, int64_t count, uint8_t scale, uint8_t* codes) {
  const float inverse = e8m0_value(static_cast<uint8_t>(254 - scale));
  for (int64_t i = 0; i < count; ++i) codes[i] = e4m3_code(values[i] * inverse);
}

void encode_row(const float* values, int64_t count, float scale, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = e4m3_code(values[i] / scale);
}

/// By how many powers of two an FP4 scale may be below 2^6 times the FP8 scale: 0.5 becomes the smallest e4m3.
constexpr int kExactSteps = 14;

/// [s][byte]: the FP8 codes of the two FP4 codes of a byte whose scale is 2^(6 - s) of the FP8 scale.
using PairTable = std::array<std::array<std::array<uint8_t, 2>, 256>, kExactSteps + 1>;

const PairTable& exact_pairs() {
  static const PairTable table = [] {
    PairTable made{};
    for (int steps = 0; steps <= kExactSteps; ++steps) {
      const auto scale = static_cast<uint8_t>(127 + 6 - steps);
      for (int byte = 0; byte < 256; ++byte) {
        uint8_t group[kFp4Block / 2] = {static_cast<uint8_t>(byte)};
        float values[kFp4Block];
        decode_fp4_row(group, &scale, 0, kFp4Block, values);
        made[steps][byte] = {e4m3_code(values[0]), e4m3_code(values[1])};
      }
    }
    return made;
  }();
  return table;
}

void recode_exactly(const uint8_t* fp4, const uint8_t* fp4_scales, uint8_t top, int64_t count, uint8_t* out) {
  for (int64_t group = 0; group < count / kFp4Block; ++group) {
    const auto& pairs = exact_pairs()[top - fp4_scales[group]];
    for (int64_t i = 0; i < kFp4Block / 2; ++i, out += 2) std::memcpy(out, pairs[*fp4++].data(), 2);
  }
}

/// Returns how many values changed.
int64_t recode_rounding(const uint8_t* fp4, const uint8_t* fp4_scales, uint8_t scale, int64_t count, uint8_t* out) {
  float values[kFp8Block], back[kFp8Block];
  decode_fp4_row(fp4, fp4_scales, 0, count, values);
  encode_row(values, count, scale, out);
  decode_fp8_row(out, &scale, 0, count, back);
  int64_t changed = 0;
  for (int64_t i = 0; i < count; ++i) changed += values[i] != back[i] ? 1 : 0;
  return changed;
}

template <typename S>
bool is_exact(const Block& block, S scale) {
  uint8_t codes[kFp8Block];
  float decoded[kFp8Block];
  const int64_t count = block.column_end - block.column;
  for (int64_t row = block.row; row < block.row_end; ++row) {
    const float* values = block.values + row * block.stride + block.column;
    encode_row(values, count, scale, codes);
    decode_fp8_row(codes, &scale, 0, count, decoded);
    if (!std::equal(decoded, decoded + count, values)) return false;
  }
  return true;
}

uint8_t choose_scale(const Block& block, float amax, const uint8_t*) {
  const uint8_t rule = fp8_scale(std::max(amax, 1e-4F));
  if (amax >= 1e-4F || amax == 0.0F || is_exact(block, rule)) return rule;
  const uint8_t without_floor = fp8_scale(amax);
  return is_exact(block, without_floor) ? without_floor : rule;
}

float choose_scale(const Block& block, float amax, const float*) {
  const float rule = std::max(amax, 1e-4F) / 448.0F;
  const float natural = amax / 448.0F;
  const float up = std::numeric_limits<float>::infinity();
  for (const float candidate : {rule, natural, std::nextafter(natural, 0.0F), std::nextafter(natural, up)}) {
    if (candidate > 0.0F && is_exact(block, candidate)) return candidate;
  }
  return rule;
}

/// Calls visit(row, row_end, column, column_end, index of the scale) for every 128 x 128 block.
template <typename Visit>
void for_each_block(int64_t rows, int64_t columns, const Visit& visit) {
  int64_t index = 0;
  for (int64_t row = 0; row < rows; row += kFp8Block) {
    for (int64_t column = 0; column < columns; column += kFp8Block) {
      visit(row, std::min(rows, row + kFp8Block), column, std::min(columns, column + kFp8Block), index++);
    }
  }
}

}  // namespace

template <typename S>
bool encode_fp8_rows(const float* values, int64_t rows, int64_t columns, uint8_t* codes, S* scales) {
  bool finite = true;
  for_each_block(rows, columns, [&](int64_t row, int64_t row_end, int64_t column, int64_t column_end, int64_t index) {
    const Block block{values, columns, row, row_end, column, column_end};
    scales[index] = choose_scale(block, largest_magnitude(block, finite), scales);
    for (int64_t r = row; r < row_end; ++r) {
      const int64_t first = r * columns + column;
      encode_row(values + first, column_end - column, scales[index], codes + first);
    }
  });
  return finite;
}

bool encode_fp4_rows(const float* values, int64_t rows, int64_t columns, uint8_t* codes, uint8_t* scales) {
  bool finite = true;
  const int64_t groups = rows * columns / kFp4Block;
  for (int64_t group = 0; group < groups; ++group) {
    const float* in = values + group * kFp4Block;
    const float amax = std::max(std::bit_cast<float>(largest_bits(in, kFp4Block, finite)), 6.0F * 0x1p-126F);
    scales[group] = fp4_scale(amax);
    const float inverse = e8m0_value(static_cast<uint8_t>(254 - scales[group]));
    uint8_t unpacked[kFp4Block];
    for (int64_t i = 0; i < kFp4Block; ++i) unpacked[i] = e2m1_code(in[i] * inverse);
    uint8_t* out = codes + group * (kFp4Block / 2);
    for (int64_t i = 0; i < kFp4Block / 2; ++i) {
      out[i] = static_cast<uint8_t>(unpacked[2 * i] | unpacked[2 * i + 1] << 4);
    }
  }
  return finite;
}

int64_t recode_fp4_rows(const uint8_t* fp4, const uint8_t* fp4_scales, int64_t rows, int64_t columns, uint8_t* fp8,
                        uint8_t* fp8_scales) {
  const int64_t groups = columns / kFp4Block;  // of a row
  int64_t changed = 0;
  bool nan = false;
  for_each_block(rows, columns, [&](int64_t row, int64_t row_end, int64_t column, int64_t column_end, int64_t index) {
    uint8_t largest = 0, smallest = 255;
    for (int64_t r = row; r < row_end; ++r) {
      for (int64_t g = column / kFp4Block; g < column_end / kFp4Block; ++g) {
        largest = std::max(largest, fp4_scales[r * groups + g]);
        smallest = std::min(smallest, fp4_scales[r * groups + g]);
      }
    }
    nan |= largest == 255;
    const uint8_t top = std::max<uint8_t>(largest, 6);
    const auto scale = static_cast<uint8_t>(top - 6);
    fp8_scales[index] = scale;
    const bool exact = top - smallest <= kExactSteps;
    for (int64_t r = row; r < row_end; ++r) {
      const uint8_t* codes = fp4 + r * (columns / 2) + column / 2;
      const uint8_t* scales = fp4_scales + r * groups + column / kFp4Block;
      uint8_t* out = fp8 + r * columns + column;
      if (exact) {
        recode_exactly(codes, scales, top, column_end - column, out);
      } else {
        changed += recode_rounding(codes, scales, scale, column_end - column, out);
      }
    }
  });
  return nan ? -1 : changed;
}

template bool encode_fp8_rows(const float*, int64_t, int64_t, uint8_t*, uint8_t*);
template bool encode_fp8_rows(const float*, int64_t, int64_t, uint8_t*, float*);

}  // namespace asterism::ops::cpu
