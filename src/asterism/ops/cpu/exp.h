#pragma once

#include <cstdint>

// For sources that are compiled once per level too: internal linkage, nothing of the standard library
// (docs/decisions/010-kernels-per-level.md).

namespace asterism::ops::cpu {

/// e^x in arithmetic that compilers vectorise (a call of std::exp keeps the loop scalar). Relative error below 1.5e-7;
/// 0 below -87, e^88 above 88, NaN stays NaN.
static inline float exponential(float x) {
  constexpr float kLog2E = 1.44269504F, kShift = 12582912.0F;          // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;  // the high part has 9 bits: n * high is exact
  const float low = x < -87.0F ? -87.0F : x;
  const float clamped = low > 88.0F ? 88.0F : low;
  const float shifted = clamped * kLog2E + kShift;
  const float n = shifted - kShift;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  // Taylor series; |r| <= ln(2) / 2 makes the first omitted term smaller than 6e-9.
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // The low bits of `shifted` are n: moved into the exponent field they make 2^n.
  const uint32_t power = (__builtin_bit_cast(uint32_t, shifted) << 23) + 0x3F800000U;
  return x < -87.0F ? 0.0F : p * __builtin_bit_cast(float, power);
}

static inline double exponential(double x) {
  return __builtin_exp(x);
}

}  // namespace asterism::ops::cpu
