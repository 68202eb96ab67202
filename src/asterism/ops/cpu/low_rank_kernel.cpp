#include "asterism/ops/cpu/low_rank_kernel.h"

#include <algorithm>

namespace asterism::ops::cpu {

namespace {

constexpr int64_t kStrip = 512;  // sums that stay in the first cache

}  // namespace

void add_low_rank_rows(const LowRankRows& update, float* values, float* change) {
  double sums[kStrip];
  for (int64_t first = 0; first < update.columns; first += kStrip) {
    const int64_t count = std::min(kStrip, update.columns - first);
    for (int64_t row = 0; row < update.rows; ++row) {
      std::fill_n(sums, count, 0.0);
      for (int64_t k = 0; k < update.rank; ++k) {
        const double factor = update.b[row * update.b_row + k * update.b_step];
        const float* a = update.a + k * update.columns + first;
        for (int64_t c = 0; c < count; ++c) sums[c] += factor * static_cast<double>(a[c]);
      }
      float* value = values + row * update.columns + first;
      float* moved = change + row * update.columns + first;
      for (int64_t c = 0; c < count; ++c) {
        const double add = update.scale * sums[c];
        value[c] = static_cast<float>(static_cast<double>(value[c]) + add);
        moved[c] = static_cast<float>(static_cast<double>(moved[c]) + add);
      }
    }
  }
}

}  // namespace asterism::ops::cpu
