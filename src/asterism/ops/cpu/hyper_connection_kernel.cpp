#include "asterism/ops/cpu/hyper_connection_kernel.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "asterism/ops/cpu/sinkhorn_kernel.h"

namespace asterism::ops::cpu {

namespace {

// Independent partial sums: the compiler may not reorder a sum, so one accumulator would keep it from vectorising.
template <typename T>
T dot(const T* a, const T* b, int64_t count) {
  constexpr int64_t kParts = 128 / sizeof(T);
  T sum[kParts] = {};
  int64_t i = 0;
  for (; i + kParts <= count; i += kParts) {
    for (int64_t p = 0; p < kParts; ++p) sum[p] += a[i + p] * b[i + p];
  }
  for (int64_t p = 0; i < count; ++i, ++p) sum[p] += a[i] * b[i];
  for (int64_t half = kParts / 2; half > 0; half /= 2) {
    for (int64_t p = 0; p < half; ++p) sum[p] += sum[p + half];
  }
  return sum[0];
}

template <typename T>
void scale_into(T* dst, const T* src, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] = factor * src[i];
}

template <typename T>
void add_scaled(T* dst, const T* src, T factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dst[i] += factor * src[i];
}

template <typename T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// 0 for pre, 1 for post, 2 for comb
int64_t scale_index(int64_t i, int64_t num_streams) {
  return std::min<int64_t>(i / num_streams, 2);
}

template <typename T>
T logit(const StreamLogits<T>& in, int64_t t, int64_t i) {
  const T mixed = in.norm[t] * in.product[t * in.num_logits + i];
  return mixed * in.scale[scale_index(i, in.num_streams)] + in.base[i];
}

// The comb logits of tokens first .. first + count - 1; unused lanes are zero, which Sinkhorn takes well.
template <typename T>
void load_comb_logits(const StreamLogits<T>& in, int64_t first, int64_t count, T* block) {
  const int64_t n = in.num_streams;
  std::fill_n(block, n * n * kSinkhornLanes, T(0));
  for (int64_t l = 0; l < count; ++l) {
    for (int64_t i = 0; i < n * n; ++i) block[i * kSinkhornLanes + l] = logit(in, first + l, 2 * n + i);
  }
}

}  // namespace

template <typename T>
void stream_norm(const StreamNormArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* x = a.x + t * a.width;
    a.norm[t] = T(1) / std::sqrt(dot(x, x, a.width) / static_cast<T>(a.width) + a.eps);
  }
}

template <typename T>
void stream_weights(const StreamWeightsArgs<T>& a, int64_t begin, int64_t end) {
  const StreamLogits<T>& in = a.logits;
  const int64_t n = in.num_streams, num_pairs = n * n;
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < n; ++j) a.pre[t * n + j] = sigmoid(logit(in, t, j)) + in.eps;
    if (a.post == nullptr) continue;
    for (int64_t k = 0; k < n; ++k) a.post[t * n + k] = T(2) * sigmoid(logit(in, t, n + k));
  }
  if (a.comb == nullptr) return;
  Sinkhorn<T> sinkhorn(n, in.iterations, in.eps);
  std::vector<T> block(num_pairs * kSinkhornLanes);
  for (int64_t first = begin; first < end; first += kSinkhornLanes) {
    const int64_t count = std::min(kSinkhornLanes, end - first);
    load_comb_logits(in, first, count, block.data());
    sinkhorn.forward(block.data());
    for (int64_t i = 0; i < count * num_pairs; ++i) {
      a.comb[first * num_pairs + i] = block[(i % num_pairs) * kSinkhornLanes + i / num_pairs];
    }
  }
}

namespace {

// Gradient of the comb logits of tokens begin .. end - 1 into grad_logit.
template <typename T>
void comb_logits_grad(const StreamWeightsGradArgs<T>& a, int64_t begin, int64_t end) {
  const StreamLogits<T>& in = a.logits;
  const int64_t n = in.num_streams, num_pairs = n * n;
  Sinkhorn<T> sinkhorn(n, in.iterations, in.eps);
  std::vector<T> block(num_pairs * kSinkhornLanes), grad(num_pairs * kSinkhornLanes);
  for (int64_t first = begin; first < end; first += kSinkhornLanes) {
    const int64_t count = std::min(kSinkhornLanes, end - first);
    load_comb_logits(in, first, count, block.data());
    sinkhorn.forward(block.data());
    std::fill(grad.begin(), grad.end(), T(0));
    for (int64_t i = 0; i < count * num_pairs; ++i) {
      grad[(i % num_pairs) * kSinkhornLanes + i / num_pairs] = a.grad_comb[first * num_pairs + i];
    }
    sinkhorn.backward(grad.data());
    for (int64_t l = 0; l < count; ++l) {
      T* out = a.grad_logit + (first + l) * in.num_logits + 2 * n;
      for (int64_t i = 0; i < num_pairs; ++i) out[i] = grad[i * kSinkhornLanes + l];
    }
  }
}

}  // namespace

template <typename T>
void stream_weights_grad(const StreamWeightsGradArgs<T>& a, int64_t begin, int64_t end) {
  const StreamLogits<T>& in = a.logits;
  const int64_t n = in.num_streams, m = in.num_logits;
  for (int64_t t = begin; t < end; ++t) {
    T* grad_logit = a.grad_logit + t * m;
    for (int64_t j = 0; j < n; ++j) {
      const T s = sigmoid(logit(in, t, j));
      a.pre[t * n + j] = s + in.eps;
      grad_logit[j] = a.grad_pre[t * n + j] * s * (T(1) - s);
    }
    if (a.grad_post == nullptr) continue;
    for (int64_t k = 0; k < n; ++k) {
      const T s = sigmoid(logit(in, t, n + k));
      grad_logit[n + k] = T(2) * a.grad_post[t * n + k] * s * (T(1) - s);
    }
  }
  if (a.grad_comb != nullptr) comb_logits_grad(a, begin, end);
  for (int64_t t = begin; t < end; ++t) {
    const T norm = in.norm[t];
    T contraction = 0;
    for (int64_t i = 0; i < m; ++i) {
      const T grad_mixed = a.grad_logit[t * m + i] * in.scale[scale_index(i, n)];
      a.grad_product[t * m + i] = norm * grad_mixed;
      contraction += grad_mixed * in.product[t * m + i];
    }
    a.norm_factor[t] = -norm * norm * norm * contraction / static_cast<T>(a.width);
  }
}

template <typename T>
void collapse_streams(const CollapseArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* x = a.x + t * a.num_streams * a.dim;
    const T* pre = a.pre + t * a.num_streams;
    T* y = a.y + t * a.dim;
    scale_into(y, x, pre[0], a.dim);
    for (int64_t j = 1; j < a.num_streams; ++j) add_scaled(y, x + j * a.dim, pre[j], a.dim);
  }
}

template <typename T>
void collapse_grad_pre(const CollapseGradPreArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < a.num_streams; ++j) {
      const int64_t stream = t * a.num_streams + j;
      a.grad_pre[stream] = dot(a.x + stream * a.dim, a.grad_y + t * a.dim, a.dim);
    }
  }
}

template <typename T>
void collapse_grad_x(const CollapseGradXArgs<T>& a, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* grad_y = a.grad_y + t * a.dim;
    for (int64_t j = 0; j < a.num_streams; ++j) {
      const int64_t stream = t * a.num_streams + j;
      const T pre = a.pre[stream], factor = a.norm_factor[t];
      const T* x = a.x + stream * a.dim;
      T* grad_x = a.grad_x + stream * a.dim;
      for (int64_t d = 0; d < a.dim; ++d) grad_x[d] += pre * grad_y[d] + factor * x[d];
    }
  }
}

template <typename T>
void mix_streams(const MixArgs<T>& a, int64_t begin, int64_t end) {
  const int64_t n = a.num_streams;
  for (int64_t t = begin; t < end; ++t) {
    const T* x = a.x + t * n * a.dim;
    const T* comb = a.comb + t * n * n;
    for (int64_t k = 0; k < n; ++k) {
      T* mixed = a.mixed + (t * n + k) * a.dim;
      scale_into(mixed, a.out + t * a.dim, a.post[t * n + k], a.dim);
      for (int64_t j = 0; j < n; ++j) add_scaled(mixed, x + j * a.dim, comb[j * n + k], a.dim);
    }
  }
}

template <typename T>
void mix_streams_grad(const MixGradArgs<T>& a, int64_t begin, int64_t end) {
  const int64_t n = a.num_streams, dim = a.dim;
  for (int64_t t = begin; t < end; ++t) {
    const T* grad = a.grad_mixed + t * n * dim;
    const T* post = a.post + t * n;
    const T* comb = a.comb + t * n * n;
    if (a.grad_out != nullptr) {
      T* grad_out = a.grad_out + t * dim;
      scale_into(grad_out, grad, post[0], dim);
      for (int64_t k = 1; k < n; ++k) add_scaled(grad_out, grad + k * dim, post[k], dim);
    }
    for (int64_t k = 0; a.grad_post != nullptr && k < n; ++k) {
      a.grad_post[t * n + k] = dot(a.out + t * dim, grad + k * dim, dim);
    }
    for (int64_t j = 0; j < n; ++j) {
      const T* x = a.x + (t * n + j) * dim;
      for (int64_t k = 0; a.grad_comb != nullptr && k < n; ++k) {
        a.grad_comb[(t * n + j) * n + k] = dot(x, grad + k * dim, dim);
      }
      if (a.grad_x == nullptr) continue;
      T* grad_x = a.grad_x + (t * n + j) * dim;
      scale_into(grad_x, grad, comb[j * n], dim);
      for (int64_t k = 1; k < n; ++k) add_scaled(grad_x, grad + k * dim, comb[j * n + k], dim);
    }
  }
}

template void stream_norm(const StreamNormArgs<float>&, int64_t, int64_t);
template void stream_norm(const StreamNormArgs<double>&, int64_t, int64_t);
template void stream_weights(const StreamWeightsArgs<float>&, int64_t, int64_t);
template void stream_weights(const StreamWeightsArgs<double>&, int64_t, int64_t);
template void stream_weights_grad(const StreamWeightsGradArgs<float>&, int64_t, int64_t);
template void stream_weights_grad(const StreamWeightsGradArgs<double>&, int64_t, int64_t);
template void collapse_streams(const CollapseArgs<float>&, int64_t, int64_t);
template void collapse_streams(const CollapseArgs<double>&, int64_t, int64_t);
template void collapse_grad_pre(const CollapseGradPreArgs<float>&, int64_t, int64_t);
template void collapse_grad_pre(const CollapseGradPreArgs<double>&, int64_t, int64_t);
template void collapse_grad_x(const CollapseGradXArgs<float>&, int64_t, int64_t);
template void collapse_grad_x(const CollapseGradXArgs<double>&, int64_t, int64_t);
template void mix_streams(const MixArgs<float>&, int64_t, int64_t);
template void mix_streams(const MixArgs<double>&, int64_t, int64_t);
template void mix_streams_grad(const MixGradArgs<float>&, int64_t, int64_t);
template void mix_streams_grad(const MixGradArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu
