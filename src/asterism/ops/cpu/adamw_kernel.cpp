#include "asterism/ops/cpu/adamw_kernel.h"

#include <cmath>

#include "asterism/ops/cpu/lanes.h"

namespace asterism::ops::cpu {

template <typename T>
void adamw_range(const AdamWKernelArgs<T>& args, int64_t begin, int64_t end) {
  // A copy: stores through T* could otherwise change the constants, which would be read again for every element.
  const AdamWKernelArgs<T> a = args;
  T* __restrict param = a.param;
  const T* __restrict grad = a.grad;
  T* __restrict exp_avg = a.exp_avg;
  T* __restrict exp_avg_sq = a.exp_avg_sq;
  for (int64_t i = begin; i < end; ++i) {
    const T g = grad[i] * a.grad_scale;
    const T m = a.beta1 * exp_avg[i] + a.rest1 * g;
    const T v = a.beta2 * exp_avg_sq[i] + a.rest2 * g * g;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    param[i] = a.decay * param[i] - a.step_size * m / (std::sqrt(v * a.correction2) + a.eps);
  }
}

template <typename T>
double sum_squares(const T* values, int64_t n) {
  return sum_terms<double>(n, [values](int64_t i) {
    const double value = values[i];
    return value * value;
  });
}

template void adamw_range(const AdamWKernelArgs<float>&, int64_t, int64_t);
template void adamw_range(const AdamWKernelArgs<double>&, int64_t, int64_t);
template double sum_squares(const float*, int64_t);
template double sum_squares(const double*, int64_t);

}  // namespace asterism::ops::cpu
