#include "asterism/ops/cpu/swiglu_kernel.h"

#include "asterism/ops/cpu/exp.h"
#include "asterism/ops/cpu/lanes.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

// Comparisons in this direction let NaN through.
template <typename T>
T clamp_above(T value, T limit) {
  return value > limit ? limit : value;
}

template <typename T>
T clamp_both(T value, T limit) {
  const T upper = clamp_above(value, limit);
  return upper < -limit ? -limit : upper;
}

template <typename T>
T sigmoid(T value) {
  return T{1} / (T{1} + exponential(-value));
}

template <typename T>
void input_grad(const SwigluGradArgs<T>& args, int64_t row) {
  const int64_t width = args.width;
  const T* grad_out = args.grad_out + row * width;
  const T* gates = args.gate_up + row * 2 * width;
  const T* ups = gates + width;
  T* grad_gates = args.grad_gate_up + row * 2 * width;
  T* grad_ups = grad_gates + width;
  const T weight = args.row_weight != nullptr ? args.row_weight[row] : T{1};
  const T limit = args.limit;
  for (int64_t i = 0; i < width; ++i) {
    const T gate = clamp_above(gates[i], limit), up = clamp_both(ups[i], limit);
    const T s = sigmoid(gate), grad = grad_out[i] * weight;
    const T grad_gate = grad * up * s * (T{1} + gate * (T{1} - s)), grad_up = grad * gate * s;
    // Equality passes the gradient.
    grad_gates[i] = gates[i] > limit ? T{0} : grad_gate;
    grad_ups[i] = (ups[i] > limit) | (ups[i] < -limit) ? T{0} : grad_up;
  }
}

template <typename T>
T row_weight_grad(const SwigluGradArgs<T>& args, int64_t row) {
  const T* grad_out = args.grad_out + row * args.width;
  const T* gates = args.gate_up + row * 2 * args.width;
  const T* ups = gates + args.width;
  const T limit = args.limit;
  return static_cast<T>(sum_terms<T>(args.width, [=](int64_t i) {
    const T gate = clamp_above(gates[i], limit);
    return grad_out[i] * gate * sigmoid(gate) * clamp_both(ups[i], limit);
  }));
}

}  // namespace

template <typename T>
void swiglu_rows(const SwigluArgs<T>& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* gates = args.gate_up + row * 2 * args.width;
    const T* ups = gates + args.width;
    T* out = args.out + row * args.width;
    const T weight = args.row_weight != nullptr ? args.row_weight[row] : T{1};
    const T limit = args.limit;
    for (int64_t i = 0; i < args.width; ++i) {
      const T gate = clamp_above(gates[i], limit);
      out[i] = gate * sigmoid(gate) * clamp_both(ups[i], limit) * weight;
    }
  }
}

template <typename T>
void swiglu_grad_rows(const SwigluGradArgs<T>& args, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    if (args.grad_gate_up != nullptr) input_grad(args, row);
    if (args.grad_row_weight != nullptr) args.grad_row_weight[row] = row_weight_grad(args, row);
  }
}

template void swiglu_rows(const SwigluArgs<float>&, int64_t, int64_t);
template void swiglu_rows(const SwigluArgs<double>&, int64_t, int64_t);
template void swiglu_grad_rows(const SwigluGradArgs<float>&, int64_t, int64_t);
template void swiglu_grad_rows(const SwigluGradArgs<double>&, int64_t, int64_t);

}  // namespace asterism::ops::cpu::ASTERISM_ISA
