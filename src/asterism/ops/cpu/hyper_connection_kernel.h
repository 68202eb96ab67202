#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// Per-token arithmetic of the hyper-connections (model-spec section 3), T = float or double. N streams of D channels,
/// M mixing logits per token: N (N + 2) for a site (pre, post, comb), N for the final collapse (pre only).
/// Every function handles the tokens begin .. end - 1 and no other; a token's result does not depend on the range it is
/// handled in, so any division into ranges gives the same bits. All arrays are dense.

/// norm[t] = 1 / sqrt(mean of x[t]² + eps)
template <typename T>
struct StreamNormArgs {
  const T* x;     // [T, width]
  T* norm;        // [T], overwritten
  int64_t width;  // N D
  T eps;
};
template <typename T>
void stream_norm(const StreamNormArgs<T>& a, int64_t begin, int64_t end);

/// What the weights of the streams are made of: logit = norm * product * scale + base.
template <typename T>
struct StreamLogits {
  const T* product;  // [T, M], fn times the streams, before the norm
  const T* norm;     // [T]
  const T* base;     // [M]
  const T* scale;    // [3], or [1] for the final collapse
  int64_t num_streams;
  int64_t num_logits;  // M
  int64_t iterations;  // of Sinkhorn, >= 1
  T eps;               // of Sinkhorn and of pre
};

/// pre = sigmoid + eps, post = 2 sigmoid, comb = Sinkhorn.
template <typename T>
struct StreamWeightsArgs {
  StreamLogits<T> logits;
  T* pre;   // [T, N], overwritten
  T* post;  // [T, N], overwritten; null for the final collapse
  T* comb;  // [T, N, N], overwritten; null for the final collapse
};
template <typename T>
void stream_weights(const StreamWeightsArgs<T>& a, int64_t begin, int64_t end);

/// Backward of stream_weights and stream_norm. The Sinkhorn trajectory is computed again.
template <typename T>
struct StreamWeightsGradArgs {
  StreamLogits<T> logits;
  const T* grad_pre;   // [T, N]
  const T* grad_post;  // [T, N]; null for the final collapse
  const T* grad_comb;  // [T, N, N]; null for the final collapse
  int64_t width;       // N D
  T* pre;              // [T, N], overwritten with the forward's value
  T* grad_logit;       // [T, M], overwritten
  T* grad_product;     // [T, M], overwritten
  T* norm_factor;      // [T], overwritten: the norm adds norm_factor[t] * x[t] to the gradient of x[t]
};
template <typename T>
void stream_weights_grad(const StreamWeightsGradArgs<T>& a, int64_t begin, int64_t end);

/// y = sum over j of pre_j X_j
template <typename T>
struct CollapseArgs {
  const T* x;    // [T, N, D]
  const T* pre;  // [T, N]
  T* y;          // [T, D], overwritten
  int64_t num_streams;
  int64_t dim;
};
template <typename T>
void collapse_streams(const CollapseArgs<T>& a, int64_t begin, int64_t end);

/// grad_pre_j = <X_j, grad_y>
template <typename T>
struct CollapseGradPreArgs {
  const T* x;       // [T, N, D]
  const T* grad_y;  // [T, D]
  T* grad_pre;      // [T, N], overwritten
  int64_t num_streams;
  int64_t dim;
};
template <typename T>
void collapse_grad_pre(const CollapseGradPreArgs<T>& a, int64_t begin, int64_t end);

/// grad_x_j += pre_j grad_y + norm_factor X_j
template <typename T>
struct CollapseGradXArgs {
  const T* x;            // [T, N, D]
  const T* grad_y;       // [T, D]
  const T* pre;          // [T, N]
  const T* norm_factor;  // [T]
  T* grad_x;             // [T, N, D], accumulated
  int64_t num_streams;
  int64_t dim;
};
template <typename T>
void collapse_grad_x(const CollapseGradXArgs<T>& a, int64_t begin, int64_t end);

/// X'_k = post_k out + sum over j of comb[j, k] X_j
template <typename T>
struct MixArgs {
  const T* x;     // [T, N, D]
  const T* out;   // [T, D]
  const T* post;  // [T, N]
  const T* comb;  // [T, N, N]
  T* mixed;       // [T, N, D], overwritten
  int64_t num_streams;
  int64_t dim;
};
template <typename T>
void mix_streams(const MixArgs<T>& a, int64_t begin, int64_t end);

/// Backward of mix_streams; a null result is skipped.
template <typename T>
struct MixGradArgs {
  const T* x;           // [T, N, D]
  const T* out;         // [T, D]
  const T* post;        // [T, N]
  const T* comb;        // [T, N, N]
  const T* grad_mixed;  // [T, N, D]
  T* grad_x;            // [T, N, D], overwritten
  T* grad_out;          // [T, D], overwritten
  T* grad_post;         // [T, N], overwritten
  T* grad_comb;         // [T, N, N], overwritten
  int64_t num_streams;
  int64_t dim;
};
template <typename T>
void mix_streams_grad(const MixGradArgs<T>& a, int64_t begin, int64_t end);

}  // namespace asterism::ops::cpu
