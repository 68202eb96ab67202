#pragma once

#include <ATen/ATen.h>

#include "asterism/ops/documents.h"
#include "asterism/ops/kept_results.h"
#include "asterism/ops/rope.h"

namespace asterism::ops {

struct SparseAttentionResult {
  at::Tensor o_THP;   // [T, H, P], type of q
  at::Tensor lse_TH;  // [T, H], natural log of the softmax denominator, sink included; fp32 (fp64); not differentiable
};

/// Attention with one key/value head shared by all query heads, K = V (model-spec 2.7). A query sees the raw keys of
/// its document at most `window` - 1 tokens back, itself included, and compressed entries: none (`entries_CP`
/// undefined), every visible one (`selected_TK` undefined), or the selected ones (indices as of index_topk, -1 =
/// unused, a repeated one counts once; an index that the query does not see is an error).
///   z_j = scale * <q, k_j>,  p_j = exp(z_j) / (sum exp(z) + exp(sink_h)),  o = sum_j p_j k_j
/// With `rotation_T`, o leaves turned back by the table: rope(o, rotation_T, inverse = true) (2.8), rounded once.
/// q_THP [T, H, P], kv_TP [T, P], entries_CP [C, P] of one type; sink_H [H] fp32 (fp64). Scores, softmax and sums are
/// fp32 (fp64); where the CPU multiplies bf16, operands of products are bf16 for bf16 inputs, p and its gradient too.
/// Works in blocks of queries (query_blocks.h): no T x T tensor, memory linear in T.
/// Differentiable in q, kv, entries (sum of key and value part) and sink (2.7). Saved: inputs, o, lse, the indices.
/// Blocks run side by side; results do not depend on the number of threads. fp32 and bf16 are computed by kernels for
/// the CPU's instruction set (cpu/level.h), fp64 and other CPUs by sparse_attention_reference.h. `kept`: o and lse
/// (kept_results.h).
SparseAttentionResult sparse_attention(const at::Tensor& q_THP, const at::Tensor& kv_TP, const at::Tensor& entries_CP,
                                       const at::Tensor& selected_TK, const at::Tensor& sink_H,
                                       const Documents& documents, const Windows* windows, int64_t window, double scale,
                                       const RopeTable& rotation_T = {}, Kept* kept = nullptr);

}  // namespace asterism::ops
