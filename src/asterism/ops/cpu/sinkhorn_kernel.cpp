#include "asterism/ops/cpu/sinkhorn_kernel.h"

#include <algorithm>
#include <cmath>

namespace asterism::ops::cpu {

namespace {

constexpr int64_t kLanes = kSinkhornLanes;

// Even steps divide by column sums (over j), odd steps by row sums (over k): the group whose sum element (j, k) is in.
int64_t group_of(int64_t step, int64_t j, int64_t k) {
  return (step % 2 == 0 ? k : j) * kLanes;
}

}  // namespace

template <typename T>
Sinkhorn<T>::Sinkhorn(int64_t num_streams, int64_t iterations, T eps)
    : num_streams_(num_streams),
      num_steps_(2 * iterations - 1),
      block_size_(num_streams * num_streams * kLanes),
      group_size_(num_streams * kLanes),
      eps_(eps),
      softmax_(block_size_),
      outputs_(num_steps_ * block_size_),
      denominators_(num_steps_ * group_size_) {}

template <typename T>
void Sinkhorn<T>::forward(T* block) {
  softmax_rows(block);
  for (int64_t step = 0; step < num_steps_; ++step) normalize(block, step);
}

template <typename T>
void Sinkhorn<T>::backward(T* grad) const {
  for (int64_t step = num_steps_ - 1; step >= 0; --step) normalize_grad(grad, step);
  softmax_rows_grad(grad);
}

// C = softmax over k + eps
template <typename T>
void Sinkhorn<T>::softmax_rows(T* block) {
  for (int64_t j = 0; j < num_streams_; ++j) {
    T top[kLanes], sum[kLanes] = {};
    std::copy_n(block + element(j, 0), kLanes, top);
    for (int64_t k = 1; k < num_streams_; ++k) {
      const T* logit = block + element(j, k);
      for (int64_t l = 0; l < kLanes; ++l) top[l] = std::max(top[l], logit[l]);
    }
    for (int64_t k = 0; k < num_streams_; ++k) {
      const T* logit = block + element(j, k);
      T* out = softmax_.data() + element(j, k);
      for (int64_t l = 0; l < kLanes; ++l) out[l] = std::exp(logit[l] - top[l]);
      for (int64_t l = 0; l < kLanes; ++l) sum[l] += out[l];
    }
    for (int64_t k = 0; k < num_streams_; ++k) {
      T* out = softmax_.data() + element(j, k);
      T* value = block + element(j, k);
      for (int64_t l = 0; l < kLanes; ++l) out[l] /= sum[l];
      for (int64_t l = 0; l < kLanes; ++l) value[l] = out[l] + eps_;
    }
  }
}

// Y = Z / (sum of Z along the axis + eps)
template <typename T>
void Sinkhorn<T>::normalize(T* block, int64_t step) {
  T* denominator = denominators_.data() + step * group_size_;
  std::fill_n(denominator, group_size_, T(0));
  for (int64_t j = 0; j < num_streams_; ++j) {
    for (int64_t k = 0; k < num_streams_; ++k) {
      const T* value = block + element(j, k);
      T* sum = denominator + group_of(step, j, k);
      for (int64_t l = 0; l < kLanes; ++l) sum[l] += value[l];
    }
  }
  for (int64_t i = 0; i < group_size_; ++i) denominator[i] += eps_;
  for (int64_t j = 0; j < num_streams_; ++j) {
    for (int64_t k = 0; k < num_streams_; ++k) {
      T* value = block + element(j, k);
      const T* sum = denominator + group_of(step, j, k);
      for (int64_t l = 0; l < kLanes; ++l) value[l] /= sum[l];
    }
  }
  std::copy_n(block, block_size_, outputs_.data() + step * block_size_);
}

// dZ = (dY - sum along the axis of dY * Y) / (S + eps)
template <typename T>
void Sinkhorn<T>::normalize_grad(T* grad, int64_t step) const {
  const T* output = outputs_.data() + step * block_size_;
  const T* denominator = denominators_.data() + step * group_size_;
  std::vector<T> contraction(group_size_, T(0));
  for (int64_t j = 0; j < num_streams_; ++j) {
    for (int64_t k = 0; k < num_streams_; ++k) {
      const int64_t at = element(j, k);
      T* sum = contraction.data() + group_of(step, j, k);
      for (int64_t l = 0; l < kLanes; ++l) sum[l] += grad[at + l] * output[at + l];
    }
  }
  for (int64_t j = 0; j < num_streams_; ++j) {
    for (int64_t k = 0; k < num_streams_; ++k) {
      T* value = grad + element(j, k);
      const T* sum = contraction.data() + group_of(step, j, k);
      const T* divisor = denominator + group_of(step, j, k);
      for (int64_t l = 0; l < kLanes; ++l) value[l] = (value[l] - sum[l]) / divisor[l];
    }
  }
}

template <typename T>
void Sinkhorn<T>::softmax_rows_grad(T* grad) const {
  for (int64_t j = 0; j < num_streams_; ++j) {
    T sum[kLanes] = {};
    for (int64_t k = 0; k < num_streams_; ++k) {
      const int64_t at = element(j, k);
      for (int64_t l = 0; l < kLanes; ++l) sum[l] += grad[at + l] * softmax_[at + l];
    }
    for (int64_t k = 0; k < num_streams_; ++k) {
      const int64_t at = element(j, k);
      for (int64_t l = 0; l < kLanes; ++l) grad[at + l] = softmax_[at + l] * (grad[at + l] - sum[l]);
    }
  }
}

template class Sinkhorn<float>;
template class Sinkhorn<double>;

}  // namespace asterism::ops::cpu
