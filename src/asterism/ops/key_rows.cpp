#include "asterism/ops/key_rows.h"

#include <ATen/Dispatch.h>

#include <algorithm>

#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

constexpr int64_t kGradientBytes = 256 << 20;

// [M, N] -> [B, M / B, N] without a copy, also for a column slice.
at::Tensor per_query(const at::Tensor& x_MN, int64_t num_queries) {
  return x_MN.view({num_queries, x_MN.size(0) / num_queries, x_MN.size(1)});
}

// In index order by one thread: repeated indices must add up the same way every time.
void scatter_add(const at::Tensor& source_BNP, const at::Tensor& index_BN, const RowGradient& target) {
  const int64_t count = index_BN.numel(), width = source_BNP.size(2);
  const auto* index = index_BN.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES(source_BNP.scalar_type(), "scatter_add", [&] {
    const auto* source = source_BNP.const_data_ptr<scalar_t>();
    auto* rows = target.rows_NP.data_ptr<scalar_t>();
    for (int64_t i = 0; i < count; ++i) {
      if (index[i] < 0) continue;
      const scalar_t* from = source + i * width;
      scalar_t* to = rows + (index[i] - target.first) * width;
      for (int64_t p = 0; p < width; ++p) to[p] += from[p];
    }
  });
}

}  // namespace

KeyRows::KeyRows(const at::Tensor& rows_CP, int64_t first, int64_t last, at::ScalarType type)
    : first_(first), num_keys_(last - first), rows_(rows_CP.slice(0, first, last).to(type)) {}

KeyRows::KeyRows(const at::Tensor& rows_CP, const at::Tensor& index_BK, int64_t unused, at::ScalarType type)
    : lists_(true), num_keys_(index_BK.size(1)), index_(index_BK.contiguous()) {
  const at::Tensor readable = at::where(index_ < 0, unused, index_).view(-1);
  rows_ = rows_CP.index_select(0, readable).to(type).view({index_.size(0), num_keys_, rows_CP.size(1)});
}

KeyRows KeyRows::entries_of(const QueryBlock& block, const at::Tensor& entries_CP, const at::Tensor& selected_TK,
                            at::ScalarType type) {
  if (!block.lists) return KeyRows(entries_CP, block.entry_first, block.entry_last, type);
  return KeyRows(entries_CP, selected_TK.slice(0, block.first, block.last), block.entry_first, type);
}

void KeyRows::scores(const at::Tensor& x_MP, const at::Tensor& score_MN) const {
  if (!lists_) return matmul_nt_out(score_MN, x_MP, rows_);
  const int64_t num_queries = rows_.size(0);
  per_query(score_MN, num_queries).copy_(matmul_batched(per_query(x_MP, num_queries), rows_.transpose(1, 2)));
}

void KeyRows::add_weighted_sum(const at::Tensor& weight_MN, const at::Tensor& sum_MP) const {
  if (!lists_) return matmul_accumulate(sum_MP, weight_MN, rows_);
  const int64_t num_queries = rows_.size(0);
  per_query(sum_MP, num_queries).add_(matmul_batched(per_query(weight_MN, num_queries), rows_));
}

void KeyRows::add_gradient(std::span<const WeightedRows> terms, const RowGradient& gradient) const {
  if (!lists_) {
    const int64_t begin = first_ - gradient.first;
    const at::Tensor rows_NP = gradient.rows_NP.slice(0, begin, begin + num_keys_);
    for (const WeightedRows& term : terms) matmul_accumulate(rows_NP, term.weight_MN.t(), term.x_MP);
    return;
  }
  const int64_t num_queries = rows_.size(0);
  at::Tensor sum_BNP = at::zeros_like(rows_);
  for (const WeightedRows& term : terms) {
    const at::Tensor weight_BNH = per_query(term.weight_MN, num_queries).transpose(1, 2);
    sum_BNP.add_(matmul_batched(weight_BNH, per_query(term.x_MP, num_queries)));
  }
  scatter_add(sum_BNP, index_, gradient);
}

int64_t num_gradient_parts(int64_t num_rows, int64_t width) {
  const int64_t bytes = std::max<int64_t>(num_rows * width, 1) * static_cast<int64_t>(sizeof(float));
  return std::clamp<int64_t>(kGradientBytes / bytes, 4, 64);
}

at::Tensor sum_in_order(const std::vector<RowGradient>& parts, int64_t num_rows, int64_t width, at::ScalarType type) {
  at::Tensor total_NP = at::zeros({num_rows, width}, type);
  for (const RowGradient& part : parts) {
    if (!part.rows_NP.defined()) continue;
    total_NP.slice(0, part.first, part.first + part.rows_NP.size(0)).add_(part.rows_NP);
  }
  return total_NP;
}

}  // namespace asterism::ops
