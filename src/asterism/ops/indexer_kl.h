#pragma once

#include <ATen/ATen.h>

#include "asterism/ops/documents.h"

namespace asterism::ops {

/// What the attention did, detached: the teacher of the indexer.
struct IndexerTeacher {
  at::Tensor q_THP;       // [T, H, P]
  at::Tensor entries_CP;  // [C, P]
  at::Tensor lse_TH;      // [T, H] of the attention, window and sink included
  double scale = 0.0;
};

/// The indexer's own loss (model-spec 7.5): sum over queries of KL(p || softmax of the index scores) over the entry set
/// A_t: the selected entries (`selected_TK` as of index_topk), or all visible ones when it is undefined.
///   p[t, c] = sum_h exp(scale <q, entry> - lse) normalised over A_t; queries with empty A_t give 0.
/// index_q_THI [T, Hi, Di], index_key_CI [C, Di], index_weight_TH [T, Hi]: the student, as in index_topk.
/// Returns a scalar sum (no coefficient, not divided), fp32 (fp64). Differentiable in the three student tensors only.
/// Blocks of queries; nothing of size T x H x C exists. T or C may be 0: the result is 0 with zero gradients.
/// Gradients are made in the same pass and kept (fp32) until the backward. Independent of the number of threads.
at::Tensor indexer_kl(const IndexerTeacher& teacher, const at::Tensor& index_q_THI, const at::Tensor& index_key_CI,
                      const at::Tensor& index_weight_TH, const at::Tensor& selected_TK, const Windows& windows);

}  // namespace asterism::ops
