#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <vector>

#include "asterism/ops/query_blocks.h"

namespace asterism::ops {

/// weight_MN [M, N] and x_MP [M, P], both fp32 or both fp64: one term of a gradient.
struct WeightedRows {
  at::Tensor weight_MN, x_MP;
};

/// Gradient of rows first, first + 1, .. of a [C, P] tensor, as summed by one task.
struct RowGradient {
  int64_t first = 0;
  at::Tensor rows_NP;  // undefined: nothing was summed
};

/// The N rows of a [C, P] tensor that a block of B queries with M / B heads each multiplies with: a range that all
/// share, or a list per query. Rows are widened to `type` (fp32, fp64). Query b owns rows b * M / B .. of an [M, ..]
/// operand. Operands may be column slices of wider matrices.
class KeyRows {
 public:
  /// Rows first .. last - 1.
  KeyRows(const at::Tensor& rows_CP, int64_t first, int64_t last, at::ScalarType type);
  /// Row index_BK[b, k] for query b; -1 reads row `unused`, and adds nothing in add_gradient.
  KeyRows(const at::Tensor& rows_CP, const at::Tensor& index_BK, int64_t unused, at::ScalarType type);
  /// What a block reads of the entries: `selected_TK` as of index_topk, or undefined.
  static KeyRows entries_of(const QueryBlock& block, const at::Tensor& entries_CP, const at::Tensor& selected_TK,
                            at::ScalarType type);

  int64_t num_keys() const { return num_keys_; }
  int64_t width() const { return rows_.size(-1); }
  /// score_MN = <x, row>, overwritten
  void scores(const at::Tensor& x_MP, const at::Tensor& score_MN) const;
  /// sum_MP += sum over rows of weight * row
  void add_weighted_sum(const at::Tensor& weight_MN, const at::Tensor& sum_MP) const;
  /// gradient row += sum over m and terms of weight * x; `gradient` covers every row in use.
  void add_gradient(std::span<const WeightedRows> terms, const RowGradient& gradient) const;

 private:
  bool lists_ = false;
  int64_t first_ = 0, num_keys_ = 0;
  at::Tensor rows_;   // [N, P], or [B, N, P] for lists
  at::Tensor index_;  // [B, N] for lists
};

/// How many tasks may sum gradients of `num_rows` rows apart from each other, at least 4 and at most 64: buffers of
/// 256 MB together where 4 allow it. A function of sizes only, so that sums do not depend on the number of threads.
int64_t num_gradient_parts(int64_t num_rows, int64_t width);

/// Sums the parts in order: [num_rows, width], zero where no part reaches.
at::Tensor sum_in_order(const std::vector<RowGradient>& parts, int64_t num_rows, int64_t width, at::ScalarType type);

}  // namespace asterism::ops
