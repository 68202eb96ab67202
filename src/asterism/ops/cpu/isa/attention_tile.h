#pragma once

#include "asterism/ops/cpu/attention_block.h"
#include "asterism/ops/cpu/isa/products.h"

// What forward and backward do with a tile of keys. The queries of a block see different stretches of it; products and
// softmax keep to the stretch of a group of columns (or rows), and hide_unseen clears what lies in the group's stretch
// and not in a query's own.

namespace asterism::ops::cpu::ASTERISM_ISA {

void open_forward(const AttentionBlock& block);
void forward_tile(const AttentionBlock& block, const KeyTile& tile);
void close_forward(const AttentionBlock& block);
void open_backward(const AttentionBlock& block);
void backward_tile(const AttentionBlock& block, const KeyTile& tile);
void close_backward(const AttentionBlock& block);
void mass_tile(const AttentionBlock& block, const KeyTile& tile, float* top, float* sum, int64_t stride);

struct Stretch {
  int64_t begin, end;
};

/// Columns of a tile, and its keys and queries in terms of each other.
class TileShape {
 public:
  TileShape(const AttentionBlock& block, const KeyTile& tile)
      : tile_(tile), heads_(block.args->num_heads), columns_(tile.num_queries * heads_) {}

  int64_t num_columns() const { return columns_; }
  int64_t padded_columns() const { return round_up(columns_, kColumnGroup); }

  /// Queries of the columns begin .. end - 1, begin < num_columns().
  Stretch queries(int64_t begin, int64_t end) const {
    return {begin / heads_, (smallest(end, columns_) - 1) / heads_ + 1};
  }
  /// Keys that any of the columns reads.
  Stretch keys(int64_t begin, int64_t end) const {
    if (tile_.key_begin == nullptr) return {0, tile_.num_keys};
    const Stretch q = queries(begin, end);
    return {tile_.key_begin[q.begin], tile_.key_end[q.end - 1]};
  }
  /// Columns that read any of the keys begin .. end - 1.
  Stretch columns(int64_t begin, int64_t end) const {
    if (tile_.query_begin == nullptr) return {0, columns_};
    return {tile_.query_begin[begin] * heads_, tile_.query_end[end - 1] * heads_};
  }
  /// The same, widened to whole groups.
  Stretch groups(int64_t begin, int64_t end) const {
    const Stretch c = columns(begin, end);
    return {c.begin / kColumnGroup * kColumnGroup, round_up(c.end, kColumnGroup)};
  }
  int64_t heads() const { return heads_; }

 private:
  const KeyTile& tile_;
  int64_t heads_, columns_;
};

/// score[key, column] = <key, column of x>, for the keys and groups of columns that meet.
inline void score_keys(const AttentionBlock& b, const KeyTile& t, const void* x_columns, float* score) {
  constexpr int64_t kDepth = 128;  // units: a panel of x then stays in the first cache for all keys
  const TileShape shape(b, t);
  const int64_t depth = b.padded_width / kPerUnit, padded = shape.padded_columns();
  const auto* x = static_cast<const Unit*>(x_columns) + t.first_query * shape.heads();
  for (int64_t first = 0; first < depth; first += kDepth) {
    const int64_t last = smallest(first + kDepth, depth);
    for (int64_t panel = 0; panel < padded; panel += kPanel) {
      for_each_row_tile(t.num_keys, [&](int64_t begin, int64_t end) {
        const Stretch seen = shape.groups(begin, end);
        const int64_t from = largest(seen.begin, panel), to = smallest(seen.end, smallest(panel + kPanel, padded));
        if (from >= to) return;
        ProductRows p;
        p.step = 1, p.first = first, p.last = last;
        for (int64_t j = begin; j < end; ++j) {
          p.a[j - begin] = static_cast<const Unit*>(t.rows[j]);
          p.c[j - begin] = score + j * b.score_stride;
        }
        const UnitRows rows{x, b.column_stride};
        if (first == 0) multiply_columns<Into::kSet>(p, end - begin, rows, from, to);
        if (first != 0) multiply_columns<Into::kAdd>(p, end - begin, rows, from, to);
      });
    }
  }
}

/// -inf where a query does not see a key of its group's stretch.
inline void hide_unseen(const AttentionBlock& b, const KeyTile& t, float* score) {
  if (t.key_begin == nullptr) return;
  const TileShape shape(b, t);
  const int64_t heads = shape.heads();
  for (int64_t group = 0; group < shape.num_columns(); group += kColumnGroup) {
    const Stretch keys = shape.keys(group, group + kColumnGroup), queries = shape.queries(group, group + kColumnGroup);
    for (int64_t q = queries.begin; q < queries.end; ++q) {
      const int64_t from = largest(group, q * heads), to = smallest(group + kColumnGroup, (q + 1) * heads);
      const auto hide = [&](int64_t j) {
        for (int64_t m = from; m < to; ++m) score[j * b.score_stride + m] = -__builtin_inff();
      };
      for (int64_t j = keys.begin; j < smallest(t.key_begin[q], keys.end); ++j) hide(j);
      for (int64_t j = largest(t.key_end[q], keys.begin); j < keys.end; ++j) hide(j);
      if (t.selected == nullptr) continue;
      for (int64_t j = t.key_begin[q]; j < t.key_end[q]; ++j) {
        if (t.selected[j * t.num_queries + q] == 0) hide(j);
      }
    }
  }
}

/// b.sum[column] = b.sum[column] * factor[column] + the sum over its keys of weight[key, column] * key.
template <Into kInto>
inline void add_weighted_keys(const AttentionBlock& b, const KeyTile& t, const Unit* weight, const float* factor) {
  const TileShape shape(b, t);
  const ElementRows rows{reinterpret_cast<const Element* const*>(t.rows)};
  float* sum = b.sum + t.first_query * shape.heads() * b.row_stride;
  for (int64_t panel = 0; panel < b.padded_width; panel += kPanel) {
    for (int64_t group = 0; group < shape.num_columns(); group += kColumnGroup) {
      const Stretch keys = shape.keys(group, group + kColumnGroup);
      if (keys.begin >= keys.end) continue;
      for_each_row_tile(smallest(kColumnGroup, shape.num_columns() - group), [&](int64_t begin, int64_t end) {
        ProductRows p;
        p.step = b.score_stride, p.first = keys.begin / kPerUnit, p.last = (keys.end + kPerUnit - 1) / kPerUnit;
        if (kInto == Into::kScaleAdd) p.factor = factor + group + begin;
        for (int64_t r = begin; r < end; ++r) {
          p.a[r - begin] = weight + group + r;
          p.c[r - begin] = sum + (group + r) * b.row_stride;
        }
        multiply_columns<kInto>(p, end - begin, rows, panel, smallest(panel + kPanel, b.padded_width));
      });
    }
  }
}

#ifdef __AVX512BF16__
inline __m512i bf16_lanes(Vec x) {
  return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(x));
}
/// Two keys' numbers of 16 columns as pairs.
inline void store_pairs(Vec first, Vec second, Unit* to) {
  _mm512_storeu_si512(to, _mm512_or_si512(bf16_lanes(first), _mm512_slli_epi32(bf16_lanes(second), 16)));
}
inline void store_elements(Vec x, Element* to) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), (__m256i)_mm512_cvtneps_pbh(x));
}
#endif

}  // namespace asterism::ops::cpu::ASTERISM_ISA
