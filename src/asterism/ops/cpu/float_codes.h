#pragma once

#include <bit>
#include <cstdint>

namespace asterism::ops::cpu {

/// Codes of single fp32 values, rounded to nearest even. Written with selections only, so that loops over them
/// vectorise.

/// e4m3 (model-spec 6.2): magnitudes above 448 and infinities become 448, NaN becomes 0x7F, the sign stays.
inline uint8_t e4m3_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), absolute = bits & 0x7FFFFFFF;
  const float magnitude = std::bit_cast<float>(absolute);
  const float clamped = magnitude > 448.0F ? 448.0F : magnitude;
  const uint32_t raw = std::bit_cast<uint32_t>(clamped);
  const uint32_t normal = ((raw + 0x7FFFF + (raw >> 20 & 1)) >> 20) - (uint32_t{120} << 3);
  // The last bit of 2^14 is worth 2^-9, the step of the subnormal codes: the addition rounds.
  const uint32_t subnormal = std::bit_cast<uint32_t>(clamped + 0x1p14F) - std::bit_cast<uint32_t>(0x1p14F);
  const uint32_t code = clamped < 0x1p-6F ? subnormal : normal;
  return static_cast<uint8_t>((absolute > 0x7F800000 ? 0x7F : code) | (bits >> 24 & 0x80));
}

/// e2m1 (6.3) in the low four bits: magnitudes above 6 and infinities become 6. NaN has no code: it becomes 0, and
/// callers look for it.
inline uint8_t e2m1_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), absolute = bits & 0x7FFFFFFF;
  const float magnitude = std::bit_cast<float>(absolute);
  const float clamped = magnitude > 6.0F ? 6.0F : magnitude;
  const uint32_t raw = std::bit_cast<uint32_t>(clamped);
  const uint32_t normal = ((raw + 0x1FFFFF + (raw >> 22 & 1)) >> 22) - (uint32_t{126} << 1);
  const uint32_t subnormal = std::bit_cast<uint32_t>(clamped + 0x1p22F) - std::bit_cast<uint32_t>(0x1p22F);
  const uint32_t code = clamped < 1.0F ? subnormal : normal;
  return static_cast<uint8_t>((absolute > 0x7F800000 ? 0 : code) | (bits >> 28 & 8));
}

/// Bits of a bf16; every NaN becomes 0x7FC0, as in c10.
inline uint16_t bf16_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
}

inline float bf16_value(uint16_t code) {
  return std::bit_cast<float>(uint32_t{code} << 16);
}

/// Bits of an IEEE half: too large becomes infinity, NaN 0x7E00 with its sign.
inline uint16_t half_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), absolute = bits & 0x7FFFFFFF;
  const uint32_t normal = ((absolute + 0xFFF + (absolute >> 13 & 1)) >> 13) - (uint32_t{112} << 10);
  // The last bit of 1/2 is worth 2^-24, the step of the subnormal halves.
  const float magnitude = std::bit_cast<float>(absolute);
  const uint32_t subnormal = std::bit_cast<uint32_t>(magnitude + 0.5F) - std::bit_cast<uint32_t>(0.5F);
  const uint32_t finite = magnitude < 0x1p-14F ? subnormal : normal;
  const uint32_t code = absolute > 0x7F800000 ? 0x7E00 : magnitude >= 65520.0F ? 0x7C00 : finite;
  return static_cast<uint16_t>(code | (bits >> 16 & 0x8000));
}

inline float half_value(uint16_t code) {
  const uint32_t absolute = code & 0x7FFF;
  const uint32_t normal = (absolute << 13) + (uint32_t{112} << 23);
  const uint32_t special = (absolute << 13) + (uint32_t{224} << 23);  // infinity and NaN
  const float subnormal = static_cast<float>(static_cast<int32_t>(absolute)) * 0x1p-24F;
  const uint32_t bits = absolute < 0x400 ? std::bit_cast<uint32_t>(subnormal) : absolute >= 0x7C00 ? special : normal;
  return std::bit_cast<float>(bits | uint32_t{code & 0x8000U} << 16);
}

/// 2^(byte - 127): byte 0 is subnormal in fp32, 255 is NaN.
inline float e8m0_value(uint8_t byte) {
  if (byte == 0) return std::bit_cast<float>(uint32_t{0x00400000});
  return std::bit_cast<float>(byte == 255 ? uint32_t{0x7FC00000} : uint32_t{byte} << 23);
}

}  // namespace asterism::ops::cpu
