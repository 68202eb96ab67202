#pragma once

// Vectors of one instruction set, for sources that are compiled once for each (asterism_isa_kernels in CMake). All
// names live in a namespace named after the set: a function compiled for AVX-512 must never be the copy that the linker
// keeps for everybody. For the same reason these sources use no template and no inline function of the standard
// library.

#ifndef ASTERISM_ISA
#error "compiled through asterism_isa_kernels only"
#endif

#include <immintrin.h>

#include <cstdint>

namespace asterism::ops::cpu::ASTERISM_ISA {

#ifdef __AVX512F__
using Vec = __m512;
using IntVec = __m512i;
constexpr int64_t kLanes = 16;
constexpr int kMaxVectors = 4;  // of a product's tile: with 6 rows 24 of the 32 registers hold sums

inline Vec load(const float* x) {
  return _mm512_loadu_ps(x);
}
inline void store(float* x, Vec v) {
  _mm512_storeu_ps(x, v);
}
inline Vec fill(float x) {
  return _mm512_set1_ps(x);
}
inline Vec multiply_add(Vec a, Vec b, Vec c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline Vec subtract(Vec a, Vec b) {
  return _mm512_sub_ps(a, b);
}
// The second operand where either is NaN.
inline Vec larger(Vec a, Vec b) {
  return _mm512_max_ps(a, b);
}
inline Vec smaller(Vec a, Vec b) {
  return _mm512_min_ps(a, b);
}
inline Vec keep_first(Vec x, int64_t count, float other) {
  return _mm512_mask_mov_ps(fill(other), static_cast<__mmask16>((1U << count) - 1), x);
}
inline float largest_lane(Vec x) {
  return _mm512_reduce_max_ps(x);
}
inline float sum_of_lanes(Vec x) {
  return _mm512_reduce_add_ps(x);
}
inline Vec zero_below(Vec x, float limit, Vec value) {
  return _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(x, fill(limit), _CMP_LT_OQ), _mm512_setzero_ps());
}
inline Vec power_of_two(Vec shifted) {
  const IntVec bits = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(bits, _mm512_set1_epi32(0x3F800000)));
}
#else
using Vec = __m256;
using IntVec = __m256i;
constexpr int64_t kLanes = 8;
constexpr int kMaxVectors = 2;  // with 6 rows 12 of the 16 registers hold sums

inline Vec load(const float* x) {
  return _mm256_loadu_ps(x);
}
inline void store(float* x, Vec v) {
  _mm256_storeu_ps(x, v);
}
inline Vec fill(float x) {
  return _mm256_set1_ps(x);
}
inline Vec multiply_add(Vec a, Vec b, Vec c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vec subtract(Vec a, Vec b) {
  return _mm256_sub_ps(a, b);
}
// The second operand where either is NaN.
inline Vec larger(Vec a, Vec b) {
  return _mm256_max_ps(a, b);
}
inline Vec smaller(Vec a, Vec b) {
  return _mm256_min_ps(a, b);
}
inline Vec keep_first(Vec x, int64_t count, float other) {
  const __m256 lane = _mm256_set_ps(7, 6, 5, 4, 3, 2, 1, 0);
  return _mm256_blendv_ps(fill(other), x, _mm256_cmp_ps(lane, fill(static_cast<float>(count)), _CMP_LT_OQ));
}
inline float largest_lane(Vec x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
inline float sum_of_lanes(Vec x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline Vec zero_below(Vec x, float limit, Vec value) {
  return _mm256_andnot_ps(_mm256_cmp_ps(x, fill(limit), _CMP_LT_OQ), value);
}
inline Vec power_of_two(Vec shifted) {
  const IntVec bits = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(bits, _mm256_set1_epi32(0x3F800000)));
}
#endif

inline Vec multiply(Vec a, Vec b) {
  return a * b;
}
inline Vec add(Vec a, Vec b) {
  return a + b;
}

/// cpu/exp.h on vectors: relative error below 1.5e-7, 0 below -87, e^88 above 88, NaN stays NaN.
inline Vec exponential(Vec x) {
  const Vec shift = fill(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec clamped = smaller(fill(88.0F), larger(fill(-87.0F), x));
  const Vec shifted = multiply_add(clamped, fill(1.44269504F), shift);
  const Vec n = subtract(shifted, shift);
  const Vec r = multiply_add(n, fill(2.12194440e-4F), multiply_add(n, fill(-0.693359375F), clamped));
  Vec p = fill(1.0F / 5040);
  p = multiply_add(p, r, fill(1.0F / 720));
  p = multiply_add(p, r, fill(1.0F / 120));
  p = multiply_add(p, r, fill(1.0F / 24));
  p = multiply_add(p, r, fill(1.0F / 6));
  p = multiply_add(p, r, fill(0.5F));
  p = multiply_add(p, r, fill(1.0F));
  p = multiply_add(p, r, fill(1.0F));
  return zero_below(x, -87.0F, multiply(p, power_of_two(shifted)));
}

inline int64_t smallest(int64_t a, int64_t b) {
  return a < b ? a : b;
}
inline int64_t largest(int64_t a, int64_t b) {
  return a < b ? b : a;
}
inline int64_t round_up(int64_t x, int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

// bf16 is the upper half of a float; rounding to nearest even, NaN stays NaN.
inline float widen(float x) {
  return x;
}
inline float widen(uint16_t x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16);
}
inline void narrow(float x, float& out) {
  out = x;
}
inline void narrow(float x, uint16_t& out) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  out = static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

// What products multiply: single floats, or pairs of bf16 whose two products are added to one fp32 sum. `Unit` is what
// one step along the summed dimension takes of a row, `Element` one number.
#ifdef __AVX512BF16__
using Element = uint16_t;
using Unit = uint32_t __attribute__((may_alias));  // of elements written one by one
constexpr int64_t kPerUnit = 2;

inline Vec load_units(const Unit* x) {
  return _mm512_castsi512_ps(_mm512_loadu_si512(x));
}
inline Vec fill_units(Unit x) {
  return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(x)));
}
inline Vec add_product(Vec sum, Vec a, Vec b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_castps_si512(a), (__m512bh)_mm512_castps_si512(b));
}
#else
using Element = float;
using Unit = float;
constexpr int64_t kPerUnit = 1;

inline Vec load_units(const Unit* x) {
  return load(x);
}
inline Vec fill_units(Unit x) {
  return fill(x);
}
inline Vec add_product(Vec sum, Vec a, Vec b) {
  return multiply_add(a, b, sum);
}
#endif

}  // namespace asterism::ops::cpu::ASTERISM_ISA
