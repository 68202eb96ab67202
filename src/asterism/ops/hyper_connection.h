#pragma once

#include <ATen/ATen.h>

namespace asterism::ops {

/// Manifold-constrained hyper-connections (model-spec section 3). N residual streams of width D.
struct HyperConnectionConfig {
  int64_t sinkhorn_iterations = 20;
  double sinkhorn_eps = 1e-6;  // hc_eps: Sinkhorn and the `pre` offset
  double rms_eps = 1e-6;       // rms_norm_eps
};

struct HyperConnectionResult {
  at::Tensor y_TD;      // collapse of the streams, type of x
  at::Tensor post_TN;   // weights of the sublayer's output, fp32 (fp64)
  at::Tensor comb_TNN;  // residual mix, [t, j, k]: source j, destination k; fp32 (fp64)
};

/// x_TND [T, N, D] in the compute type; fn [N (N + 2), N D], base [N (N + 2)], scale [3], fp32 (fp64), kept so in every
/// mode. Differentiable in all four. The Sinkhorn chain is unrolled exactly (3.2, 3.5) and recomputed in the backward.
HyperConnectionResult hyper_connection_pre(const at::Tensor& x_TND, const at::Tensor& fn, const at::Tensor& base,
                                           const at::Tensor& scale, const HyperConnectionConfig& config);

/// X'_k = post_k * out + sum_j comb[j, k] X_j, summed in fp32 (fp64), rounded once to the type of x. The sum runs over
/// the first index of comb: X' = combᵀ X. Differentiable in all four.
at::Tensor hyper_connection_post(const at::Tensor& x_TND, const at::Tensor& out_TD, const at::Tensor& post_TN,
                                 const at::Tensor& comb_TNN);

/// The final collapse (3.4): fn [N, N D], base [N], scale [1] -> [T, D] in the type of x. Differentiable in all.
at::Tensor hyper_connection_head(const at::Tensor& x_TND, const at::Tensor& fn, const at::Tensor& base,
                                 const at::Tensor& scale, const HyperConnectionConfig& config);

}  // namespace asterism::ops
