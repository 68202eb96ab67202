#pragma once

#include <cstdint>

// For sources that are compiled once per level too: internal linkage, nothing of the standard library
// (docs/decisions/010-kernels-per-level.md).

namespace asterism::ops::cpu {

constexpr int64_t kLanes = 16;

/// term(0) + ... + term(n - 1), terms of type T. A fixed order for every n that still vectorises: 16 interleaved
/// partial sums in T, folded into fp64 every 2048 terms, so that rounding does not grow with n.
template <typename T, typename Term>
static inline double sum_terms(int64_t n, Term term) {
  constexpr int64_t kBlock = 2048;
  double total = 0.0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = n - begin < kBlock ? n : begin + kBlock;
    T lane[kLanes] = {};
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t j = 0; j < kLanes; ++j) lane[j] += term(i + j);
    }
    for (int64_t j = 0; i < end; ++i, ++j) lane[j] += term(i);
    for (const T value : lane) total += static_cast<double>(value);
  }
  return total;
}

}  // namespace asterism::ops::cpu
