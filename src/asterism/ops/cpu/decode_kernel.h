#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// Columns begin .. end - 1 of a row of FP8 codes (model-spec 6.2): out[c - begin] = e4m3(codes[c]) * scale of
/// block c / 128. T is float, double or uint16_t (the bits of a bf16, rounded once); S is uint8_t (e8m0) or float.
template <typename T, typename S>
void decode_fp8_row(const uint8_t* codes, const S* block_scales, int64_t begin, int64_t end, T* out);

/// Columns begin .. end - 1, both even, of a row of FP4 codes (6.3): two to a byte, the lower half first, and one e8m0
/// scale per 32 columns. T as above; exact in each.
template <typename T>
void decode_fp4_row(const uint8_t* codes, const uint8_t* scales, int64_t begin, int64_t end, T* out);

}  // namespace asterism::ops::cpu
