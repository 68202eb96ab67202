#include "asterism/ops/cpu/rms_norm_kernel.h"

#include <cmath>

#include "asterism/ops/cpu/lanes.h"

namespace asterism::ops::cpu {

namespace {

// The weight as a function of the channel, so that the loops without a weight carry no load and no branch.
template <typename T>
struct Weight {
  const T* values;
  T operator()(int64_t i) const { return values[i]; }
};

template <typename T>
struct NoWeight {
  T operator()(int64_t) const { return T{1}; }
};

template <typename T, typename W>
void forward_rows(const RmsNormArgs<T>& args, W weight, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const T* x = args.x + row * args.n;
    T* out = args.out + row * args.n;
    const double squares = sum_terms<T>(args.n, [x](int64_t i) { return x[i] * x[i]; });
    const T rstd = static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(args.n) + args.eps));
    args.rstd[row] = rstd;
    for (int64_t i = 0; i < args.n; ++i) out[i] = x[i] * rstd * weight(i);
  }
}

template <typename T, typename W>
void input_grad(const RmsNormGradArgs<T>& args, W weight, int64_t row) {
  const T* dy = args.grad_out + row * args.n;
  const T* x = args.x + row * args.n;
  T* dx = args.grad_x + row * args.n;
  const T rstd = args.rstd[row];
  const double dot = sum_terms<T>(args.n, [=](int64_t i) { return dy[i] * weight(i) * (x[i] * rstd); });
  const T mean = static_cast<T>(dot / static_cast<double>(args.n));
  for (int64_t i = 0; i < args.n; ++i) dx[i] = rstd * (dy[i] * weight(i) - x[i] * rstd * mean);
}

}  // namespace

template <typename T>
void rms_norm_rows(const RmsNormArgs<T>& args, int64_t begin, int64_t end) {
  if (args.weight != nullptr) {
    forward_rows(args, Weight<T>{args.weight}, begin, end);
  } else {
    forward_rows(args, NoWeight<T>{}, begin, end);
  }
}

template <typename T>
void rms_norm_grad_rows(const RmsNormGradArgs<T>& args, int64_t begin, int64_t end, T* grad_weight) {
  for (int64_t row = begin; row < end; ++row) {
    if (args.grad_x != nullptr && args.weight != nullptr) input_grad(args, Weight<T>{args.weight}, row);
    if (args.grad_x != nullptr && args.weight == nullptr) input_grad(args, NoWeight<T>{}, row);
    if (grad_weight == nullptr) continue;
    const T* dy = args.grad_out + row * args.n;
    const T* x = args.x + row * args.n;
    const T rstd = args.rstd[row];
    for (int64_t i = 0; i < args.n; ++i) grad_weight[i] += dy[i] * (x[i] * rstd);
  }
}

template void rms_norm_rows(const RmsNormArgs<float>&, int64_t, int64_t);
template void rms_norm_rows(const RmsNormArgs<double>&, int64_t, int64_t);
template void rms_norm_grad_rows(const RmsNormGradArgs<float>&, int64_t, int64_t, float*);
template void rms_norm_grad_rows(const RmsNormGradArgs<double>&, int64_t, int64_t, double*);

}  // namespace asterism::ops::cpu
