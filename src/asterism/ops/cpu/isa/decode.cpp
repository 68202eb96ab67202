#include "asterism/ops/cpu/decode_kernel.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

constexpr uint32_t kQuietNan = 0x7FC00000;

inline int64_t smallest(int64_t a, int64_t b) {
  return a < b ? a : b;
}

float scale_value(float scale) {
  return scale;
}

// 2^(byte - 127): byte 0 is subnormal, 255 is NaN.
float scale_value(uint8_t byte) {
  if (byte == 0) return __builtin_bit_cast(float, uint32_t{0x00400000});
  return __builtin_bit_cast(float, byte == 255 ? kQuietNan : static_cast<uint32_t>(byte) << 23);
}

// Shifts and selections instead of a table: they vectorise, table look-ups do not.
inline float e4m3_value(uint32_t code) {
  const uint32_t bits = code & 0x7F;
  const uint32_t normal = (bits << 20) + (uint32_t{120} << 23);
  const uint32_t subnormal = __builtin_bit_cast(uint32_t, static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-9F);
  const uint32_t finite = bits < 8 ? subnormal : normal;
  return __builtin_bit_cast(float, (bits == 0x7F ? kQuietNan : finite) | (code & 0x80) << 24);
}

inline float e2m1_value(uint32_t code) {
  const uint32_t bits = code & 7;
  const uint32_t normal = (bits << 22) + (uint32_t{126} << 23);
  const uint32_t subnormal = bits == 0 ? 0 : uint32_t{126} << 23;
  return __builtin_bit_cast(float, (bits < 2 ? subnormal : normal) | (code & 8) << 28);
}

inline void store(float value, float& out) {
  out = value;
}
inline void store(float value, double& out) {
  out = static_cast<double>(value);
}
// Round to nearest even.
inline void store(float value, uint16_t& out) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  out = static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? kQuietNan >> 16 : rounded);
}

// A code to a byte, for a stretch of columns: the decoding loops then vectorise.
constexpr int64_t kStretch = 512;

inline void unpack(const uint8_t* __restrict pairs, int64_t count, uint8_t* __restrict code) {
  for (int64_t i = 0; i < count; ++i) {
    code[2 * i] = pairs[i] & 15;
    code[2 * i + 1] = pairs[i] >> 4;
  }
}

template <typename T>
inline void decode_unpacked(const uint8_t* __restrict code, float scale, int64_t count, T* __restrict out) {
  for (int64_t i = 0; i < count; ++i) store(e2m1_value(code[i]) * scale, out[i]);
}

}  // namespace

template <typename T, typename S>
void decode_fp8_row(const uint8_t* codes, const S* block_scales, int64_t begin, int64_t end, T* out) {
  for (int64_t first = begin; first < end;) {
    const int64_t block = first / 128, last = smallest(end, (block + 1) * 128);
    const float scale = scale_value(block_scales[block]);
    for (int64_t c = first; c < last; ++c) store(e4m3_value(codes[c]) * scale, out[c - begin]);
    first = last;
  }
}

template <typename T>
void decode_fp4_row(const uint8_t* codes, const uint8_t* scales, int64_t begin, int64_t end, T* out) {
  uint8_t code[kStretch];
  for (int64_t start = begin; start < end; start += kStretch) {
    const int64_t stop = smallest(end, start + kStretch);
    unpack(codes + start / 2, (stop - start) / 2, code);
    for (int64_t first = start; first < stop;) {
      const int64_t block = first / 32, last = smallest(stop, (block + 1) * 32);
      decode_unpacked(code + (first - start), scale_value(scales[block]), last - first, out + (first - begin));
      first = last;
    }
  }
}

template void decode_fp8_row(const uint8_t*, const uint8_t*, int64_t, int64_t, float*);
template void decode_fp8_row(const uint8_t*, const uint8_t*, int64_t, int64_t, double*);
template void decode_fp8_row(const uint8_t*, const uint8_t*, int64_t, int64_t, uint16_t*);
template void decode_fp8_row(const uint8_t*, const float*, int64_t, int64_t, float*);
template void decode_fp8_row(const uint8_t*, const float*, int64_t, int64_t, double*);
template void decode_fp8_row(const uint8_t*, const float*, int64_t, int64_t, uint16_t*);
template void decode_fp4_row(const uint8_t*, const uint8_t*, int64_t, int64_t, float*);
template void decode_fp4_row(const uint8_t*, const uint8_t*, int64_t, int64_t, double*);
template void decode_fp4_row(const uint8_t*, const uint8_t*, int64_t, int64_t, uint16_t*);

}  // namespace asterism::ops::cpu::ASTERISM_ISA
