#pragma once

#include <ATen/ATen.h>

#include "asterism/ops/documents.h"

namespace asterism::ops {

/// Routing (model-spec 4.1). Scores s = sqrt(softplus(l)), fp32 (fp64 for fp64) in every mode, with the branch
/// exp(l / 2) below -20 where softplus would underflow.

/// Scores [T, E] of logits [T, E]; not differentiable (router_weights is).
at::Tensor router_scores(const at::Tensor& logits_TE);

/// The K experts with the largest s + bias, ties to the smaller index; int64 [T, K], ascending expert id.
/// bias_E fp32 (fp64): selection only, no gradient.
at::Tensor choose_experts(const at::Tensor& logits_TE, const at::Tensor& bias_E, int64_t k);

/// The hash router's choice: row id of `table_VK` (int32 or int64 [V, K]); int64 [T, K], order of the table, which may
/// name one expert twice.
at::Tensor hash_experts(const at::Tensor& table_VK, const at::Tensor& ids_T);

/// w_j = scaling * s_j / (sum over the chosen slots of s + 1e-20), [T, K] fp32 (fp64). Differentiable in the logits.
at::Tensor router_weights(const at::Tensor& logits_TE, const at::Tensor& expert_TK, double scaling);

/// Sequence-wise balance loss without coefficient (7.3): sum over documents of sum_i f_i P_i. Differentiable in the
/// logits. The caller divides by the number of documents of the step.
at::Tensor balance_loss(const at::Tensor& logits_TE, const at::Tensor& expert_TK, const Documents& documents);

}  // namespace asterism::ops
