#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// Rows [rows, columns] of fp32 values as FP8 codes with one scale per 128 x 128 block, the first block at row 0 and
/// edge blocks partial (model-spec 6.2). S is uint8_t (e8m0): S = 2^ceil(log2(amax / 448)), or float: S = amax / 448;
/// amax = max(largest magnitude of the block, 1e-4). Where that scale does not reproduce the block exactly but another
/// of the same kind does (the neighbouring floats; without the floor of 1e-4), that one is taken: a block that was FP8
/// before keeps its values. False when a value is not finite; such values become NaN or saturate and do not count for
/// amax.
template <typename S>
bool encode_fp8_rows(const float* values, int64_t rows, int64_t columns, uint8_t* codes, S* scales);

/// Rows [rows, columns] as FP4 codes, two to a byte, with one e8m0 scale per 32 columns (6.3): S =
/// 2^ceil(log2(amax/6)), amax = max(largest magnitude, 6 * 2^-126). columns is a multiple of 32. Exact for values that
/// were FP4 with scales from 2^-126 on. False when a value is not finite.
bool encode_fp4_rows(const float* values, int64_t rows, int64_t columns, uint8_t* codes, uint8_t* scales);

/// FP4 codes with their scales per 32 columns as FP8 codes with e8m0 scales per 128 x 128 block, each the largest FP4
/// scale of the block / 2^6 (6.3). Returns how many values changed: none when the smallest FP4 scale of every block is
/// at least 2^-14 of the largest. -1 when a scale is NaN.
int64_t recode_fp4_rows(const uint8_t* fp4, const uint8_t* fp4_scales, int64_t rows, int64_t columns, uint8_t* fp8,
                        uint8_t* fp8_scales);

}  // namespace asterism::ops::cpu
