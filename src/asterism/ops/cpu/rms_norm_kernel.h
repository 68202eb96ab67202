#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

template <typename T>
struct RmsNormArgs {
  const T* x;       // [R, n]
  const T* weight;  // [n], or null: no weight
  T* out;           // [R, n], overwritten
  T* rstd;          // [R], overwritten: 1 / sqrt(mean(x²) + eps)
  int64_t n;
  double eps;
};

/// Rows begin .. end - 1. T is float or double.
template <typename T>
void rms_norm_rows(const RmsNormArgs<T>& args, int64_t begin, int64_t end);

template <typename T>
struct RmsNormGradArgs {
  const T* grad_out;  // [R, n]
  const T* x;         // [R, n]
  const T* weight;    // [n], or null
  const T* rstd;      // [R]
  T* grad_x;          // [R, n], overwritten; null: not wanted
  int64_t n;
};

/// Rows begin .. end - 1; adds their share of the weight's gradient to grad_weight [n] unless that is null.
template <typename T>
void rms_norm_grad_rows(const RmsNormGradArgs<T>& args, int64_t begin, int64_t end, T* grad_weight);

}  // namespace asterism::ops::cpu
