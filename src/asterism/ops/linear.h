#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>

#include "asterism/ops/kept_results.h"
#include "asterism/ops/matrix.h"

namespace asterism::ops {

/// Dropout whose mask is a pure function of (key, token id, channel): recomputation, other micro-batches and other
/// layouts draw the same mask without any state.
struct Dropout {
  double probability = 0.0;  // 0 <= p < 1
  uint64_t key = 0;          // names run seed, step, layer and target
  at::Tensor token_T;        // int64 [T], names the token in the step: row index * row length + position in the row
};

/// A low-rank update of a weight: W + scale * B A, never formed (LoRA, Hu et al. 2021). Layout as in PEFT.
struct LoraPair {
  at::Tensor a_RK;     // [r, in]
  at::Tensor b_NR;     // [out, r]
  double scale = 0.0;  // alpha / r, or alpha / sqrt(r)
};

/// Call it qualified, ops::linear: argument-dependent lookup finds at::linear too.
/// y = x Wᵀ. x_TK [T, K] in the compute type, w_NK [N, K] in its storage type or packed; returns [T, N] in the type of
/// x. Differentiable in x_TK and a plain w_NK (the gradient of w_NK has the type of w_NK). T may be 0. A packed weight
/// is decoded tile by tile in both passes (ops/packed_matmul.h), to what decoding it first would give up to rounding.
at::Tensor linear(const at::Tensor& x_TK, const Matrix& w_NK);

/// y = x Wᵀ + scale * (dropout(x) Aᵀ) Bᵀ. Differentiable in x, a plain W, A and B. `kept`: y (kept_results.h).
at::Tensor linear(const at::Tensor& x_TK, const Matrix& w_NK, const std::optional<LoraPair>& lora,
                  const std::optional<Dropout>& dropout, Kept* kept = nullptr);

/// The grouped output projection (model-spec 2.8): x_TGK [T, G, K], w_MK [G * N, K] where rows g * N .. belong to group
/// g; returns [T, G * N]. With LoRA: A [r, K] is shared by the groups, rows g * N .. of B [G * N, r] belong to group g.
at::Tensor grouped_linear(const at::Tensor& x_TGK, const Matrix& w_MK, const std::optional<LoraPair>& lora);

/// x with entries zeroed and the rest divided by 1 - p. x_TK [T, K]. Differentiable in x.
at::Tensor dropout(const at::Tensor& x_TK, const Dropout& args);

}  // namespace asterism::ops
