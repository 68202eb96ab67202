#pragma once

#include <ATen/ATen.h>

#include "asterism/ops/documents.h"

namespace asterism::ops {

/// The lightning indexer's choice (model-spec 2.6): for each query the k visible entries with the largest
/// I[t, c] = sum_h w[t, h] * relu(<q[t, h], key[c]>), fp32 scores (fp64 for fp64), ties to the smaller index.
/// q_THI [T, Hi, Di], key_CI [C, Di], weight_TH [T, Hi] (constant scales already in it).
/// Returns int64 [T, min(k, C)]: indices into the C entries, ascending, then -1. Where at most k entries are visible
/// all of them are taken without scoring. Works in blocks of queries: nothing of size T x Hi x C exists. Kernels for
/// the CPU's instruction set (cpu/level.h) compute fp32, plain tensor operations fp64 and what other CPUs do. A score
/// that is NaN is an error. Results do not depend on the number of threads. Not differentiable (a selection); the
/// indexer learns through indexer_kl only.
at::Tensor index_topk(const at::Tensor& q_THI, const at::Tensor& key_CI, const at::Tensor& weight_TH,
                      const Windows& windows, int64_t k);

/// The scores themselves, [T, C] with -inf where not visible: for tests and small inputs.
at::Tensor index_scores(const at::Tensor& q_THI, const at::Tensor& key_CI, const at::Tensor& weight_TH,
                        const Windows& windows);

}  // namespace asterism::ops
