#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

template <typename T>
struct SwigluArgs {
  const T* gate_up;     // [R, 2 * width]: gates, then ups
  const T* row_weight;  // [R], or null: 1
  T* out;               // [R, width], overwritten
  int64_t width;
  T limit;  // > 0; infinity: no clamp
};

/// Rows begin .. end - 1. T is float or double.
template <typename T>
void swiglu_rows(const SwigluArgs<T>& args, int64_t begin, int64_t end);

template <typename T>
struct SwigluGradArgs {
  const T* grad_out;    // [R, width]
  const T* gate_up;     // [R, 2 * width]
  const T* row_weight;  // [R], or null: 1
  T* grad_gate_up;      // [R, 2 * width], overwritten; null: not wanted
  T* grad_row_weight;   // [R], overwritten; null: not wanted
  int64_t width;
  T limit;
};

template <typename T>
void swiglu_grad_rows(const SwigluGradArgs<T>& args, int64_t begin, int64_t end);

}  // namespace asterism::ops::cpu
