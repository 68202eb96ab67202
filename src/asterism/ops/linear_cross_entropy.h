#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace asterism::ops {

constexpr int64_t kIgnoredTarget = -100;

/// sum over t of weight_t * (logsumexp(h_t Wᵀ) - (h_t Wᵀ)[target_t]); rows with target -100 are left out (no products
/// either). Returns a scalar fp32 (fp64). Differentiable in h and W. A target outside 0 .. V-1 is an error.
///
/// h_TD [T, D] in the compute type, w_VD [V, D] in its storage type, target_T int64 [T], weight_T fp32 (fp64) [T] or
/// undefined (= 1). Logits, softmax and the sum in fp32 (fp64), in chunks of rows of at most `chunk_bytes` of logits:
/// logits of all rows never exist at once. For bf16 h the factors of products, the gradient of the logits among them,
/// are bf16 where the CPU multiplies it (matmul.h).
///
/// Gradients are made in the forward pass, when somebody wants them, and scaled in place in the backward: each is
/// handed out once, a second backward pass over the same loss is an error (keeping it would take a copy of W's size).
at::Tensor linear_cross_entropy(const at::Tensor& h_TD, const at::Tensor& w_VD, const at::Tensor& target_T,
                                const at::Tensor& weight_T, int64_t chunk_bytes = int64_t{64} << 20);

/// The same value without gradients, and the number of rows whose most probable token is the target.
struct CrossEntropyScores {
  double loss_sum = 0.0;
  int64_t correct = 0;
};
CrossEntropyScores score_cross_entropy(const at::Tensor& h_TD, const at::Tensor& w_VD, const at::Tensor& target_T,
                                       const at::Tensor& weight_T, int64_t chunk_bytes = int64_t{64} << 20);

}  // namespace asterism::ops
