#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

template <typename T>
struct AdamWKernelArgs {
  T* param;  // overwritten
  const T* grad;
  T* exp_avg;     // overwritten
  T* exp_avg_sq;  // overwritten
  T grad_scale;
  T beta1, rest1;  // rest = 1 - beta, formed in fp64
  T beta2, rest2;
  T decay;        // 1 - lr * weight decay
  T step_size;    // lr / (1 - beta1^t)
  T correction2;  // 1 / (1 - beta2^t)
  T eps;
};

/// Elements begin .. end - 1; every element has the same bits whatever the range it is in. T is float or double.
template <typename T>
void adamw_range(const AdamWKernelArgs<T>& args, int64_t begin, int64_t end);

/// Sum of squares of n values in fp64, in a fixed order.
template <typename T>
double sum_squares(const T* values, int64_t n);

}  // namespace asterism::ops::cpu
