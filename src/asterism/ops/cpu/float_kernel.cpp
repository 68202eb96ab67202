#include "asterism/ops/cpu/float_kernel.h"

#include <algorithm>
#include <cmath>

#include "asterism/ops/cpu/float_codes.h"

namespace asterism::ops::cpu {

void bf16_to_float(const uint16_t* codes, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = bf16_value(codes[i]);
}

void half_to_float(const uint16_t* codes, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = half_value(codes[i]);
}

void float_to_bf16(const float* values, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = bf16_code(values[i]);
}

void float_to_half(const float* values, int64_t count, uint16_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = half_code(values[i]);
}

ValueChanges value_changes(const float* before, const float* after, int64_t count) {
  constexpr int64_t kPart = 1 << 20;  // counts of a part fit 32 bits, which vectorise
  ValueChanges total;
  for (int64_t begin = 0; begin < count; begin += kPart) {
    const int64_t end = std::min(count, begin + kPart);
    int32_t changed = 0, vanished = 0;
    uint32_t largest = 0;  // as bits: magnitudes are ordered as their bits are
    for (int64_t i = begin; i < end; ++i) {
      const float x = before[i], y = after[i];
      const int32_t differs =
          static_cast<int32_t>(!(x == y)) & (static_cast<int32_t>(x == x) | static_cast<int32_t>(y == y));
      const int32_t zero = differs & static_cast<int32_t>(y == 0.0F);
      const float relative = std::fabs((y - x) / x);
      const uint32_t bits = std::bit_cast<uint32_t>(relative) & (0U - static_cast<uint32_t>(differs & ~zero));
      changed += differs;
      vanished += zero;
      largest = std::max(largest, bits);
    }
    total.changed += changed;
    total.vanished += vanished;
    total.largest_relative = std::max(total.largest_relative, std::bit_cast<float>(largest));
  }
  return total;
}

}  // namespace asterism::ops::cpu
