#pragma once

#include "asterism/ops/cpu/isa/vector.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

/// 8 x 8 units of 32 bits from rows at `from`, `from_bytes` apart, to rows at `to`, `to_stride` units apart.
inline void transpose_square(const void* from, int64_t from_bytes, Unit* to, int64_t to_stride) {
  __m256 r[8], s[8];
  for (int i = 0; i < 8; ++i) {
    const void* row = static_cast<const char*>(from) + i * from_bytes;
    r[i] = _mm256_castsi256_ps(_mm256_loadu_si256(static_cast<const __m256i*>(row)));
  }
  for (int i = 0; i < 4; ++i) {
    s[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    s[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(s[4 * i], s[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(s[4 * i], s[4 * i + 2], 0xEE);
    r[4 * i + 2] = _mm256_shuffle_ps(s[4 * i + 1], s[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(s[4 * i + 1], s[4 * i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    const __m256 low = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20),
                 high = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * to_stride), _mm256_castps_si256(low));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (i + 4) * to_stride), _mm256_castps_si256(high));
  }
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
