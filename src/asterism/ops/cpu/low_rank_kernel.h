#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// scale * B A, for some rows of B.
struct LowRankRows {
  const float* a;  // [rank, columns], contiguous
  const float* b;  // entry k of row n lies at b[n * b_row + k * b_step]
  int64_t rank, b_row, b_step;
  double scale;
  int64_t rows, columns;
};

/// values [rows, columns] += the update, and change [rows, columns] += the same: every number of the update is summed
/// in fp64, added in fp64 and rounded once, so that the order of the sums does not show.
void add_low_rank_rows(const LowRankRows& update, float* values, float* change);

}  // namespace asterism::ops::cpu
