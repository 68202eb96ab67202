#pragma once

#include "asterism/ops/cpu/isa/vector.h"

// The tile of every product: rows of c (pointers) += a b, held in registers over the whole sum. a is read a number at a
// time and broadcast, so its rows may lie anywhere; b is read in vectors. The order of a sum is that of k, whatever the
// tile.

namespace asterism::ops::cpu::ASTERISM_ISA {

constexpr int kMaxRows = 6;
constexpr int64_t kPanel = kMaxVectors * kLanes;  // columns of a tile

enum class Into { kSet, kAdd, kScaleAdd };

/// b as a matrix of units with `stride` units from one step to the next.
struct UnitRows {
  static constexpr bool kPairs = false;
  const Unit* base;
  int64_t stride;

  template <int V>
  void load_step(int64_t k, int64_t column, Vec* out) const {
    const Unit* row = base + k * stride + column;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) out[v] = load_units(row + v * kLanes);
  }
};

/// b as rows of elements that lie anywhere: step k reads the rows k * kPerUnit .. of `rows`.
struct ElementRows {
  static constexpr bool kPairs = kPerUnit == 2;
  const Element* const* rows;

#ifdef __AVX512BF16__
  // Pairs the two rows: (x0 y0, x1 y1, ..).
  template <int V>
  void load_step(int64_t k, int64_t column, Vec* out) const {
    static_assert(V % 2 == 0);
    const Element* x = rows[2 * k] + column;
    const Element* y = rows[2 * k + 1] + column;
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
#pragma GCC unroll 2
    for (int v = 0; v < V; v += 2) {
      const __m512i a = _mm512_loadu_si512(x + v * kLanes), b = _mm512_loadu_si512(y + v * kLanes);
      out[v] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, low, b));
      out[v + 1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, high, b));
    }
  }
#else
  template <int V>
  void load_step(int64_t k, int64_t column, Vec* out) const {
    const Element* row = rows[k] + column;
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) out[v] = load(row + v * kLanes);
  }
#endif
};

/// One product of at most kMaxRows rows: c[r][column ..] = or += the sum over k of a[r][k * step] * b(k, column ..),
/// k = first .. last - 1. With kScaleAdd c[r] is multiplied by factor[r] first.
struct ProductRows {
  const Unit* a[kMaxRows];
  int64_t step;
  float* c[kMaxRows];
  const float* factor;
  int64_t first, last;
};

template <Into kInto, int R, int V, typename B>
inline void multiply_tile(const ProductRows& p, const B& b, int64_t column) {
  Vec sum[R][V];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      if (kInto == Into::kSet) sum[r][v] = fill(0.0F);
      if (kInto != Into::kSet) sum[r][v] = load(p.c[r] + column + v * kLanes);
      if (kInto == Into::kScaleAdd) sum[r][v] = multiply(sum[r][v], fill(p.factor[r]));
    }
  }
  const Unit* a[R];
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) a[r] = p.a[r];
  for (int64_t k = p.first; k < p.last; ++k) {
    Vec row[V];
    b.template load_step<V>(k, column, row);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Vec x = fill_units(a[r][k * p.step]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = add_product(sum[r][v], x, row[v]);
    }
  }
#pragma GCC unroll 6
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) store(p.c[r] + column + v * kLanes, sum[r][v]);
  }
}

/// Cuts count rows into the fewest tiles of about equal size: calls body(begin, end).
template <typename Body>
inline void for_each_row_tile(int64_t count, const Body& body) {
  const int64_t tiles = (count + kMaxRows - 1) / kMaxRows;
  for (int64_t i = 0; i < tiles; ++i) body(i * count / tiles, (i + 1) * count / tiles);
}

template <Into kInto, int V, typename B>
void multiply_rows(const ProductRows& p, int64_t num_rows, const B& b, int64_t column) {
  switch (num_rows) {
    case 1:
      return multiply_tile<kInto, 1, V>(p, b, column);
    case 2:
      return multiply_tile<kInto, 2, V>(p, b, column);
    case 3:
      return multiply_tile<kInto, 3, V>(p, b, column);
    case 4:
      return multiply_tile<kInto, 4, V>(p, b, column);
    case 5:
      return multiply_tile<kInto, 5, V>(p, b, column);
    default:
      return multiply_tile<kInto, 6, V>(p, b, column);
  }
}

/// Columns begin .. end - 1, whole vectors (whole pairs of vectors for bf16 rows).
template <Into kInto, typename B>
void multiply_columns(const ProductRows& p, int64_t num_rows, const B& b, int64_t begin, int64_t end) {
  int64_t column = begin;
  for (; column + kPanel <= end; column += kPanel) multiply_rows<kInto, kMaxVectors>(p, num_rows, b, column);
#ifdef __AVX512F__
  if (column + 2 * kLanes <= end) {
    multiply_rows<kInto, 2>(p, num_rows, b, column);
    column += 2 * kLanes;
  }
#endif
  if constexpr (kPerUnit == 1 || !B::kPairs) {
    if (column < end) multiply_rows<kInto, 1>(p, num_rows, b, column);
  }
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
