#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// Whole arrays between fp32 and the two halves, by the rules of float_codes.h.
void bf16_to_float(const uint16_t* codes, int64_t count, float* out);
void half_to_float(const uint16_t* codes, int64_t count, float* out);
void float_to_bf16(const float* values, int64_t count, uint16_t* out);
void float_to_half(const float* values, int64_t count, uint16_t* out);

struct ValueChanges {
  int64_t changed = 0;            // values that differ; NaN is equal to NaN
  int64_t vanished = 0;           // of them, those that became 0
  float largest_relative = 0.0F;  // |after - before| / |before| of the others
};

ValueChanges value_changes(const float* before, const float* after, int64_t count);

}  // namespace asterism::ops::cpu
