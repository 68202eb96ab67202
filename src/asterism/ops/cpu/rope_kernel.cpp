#include "asterism/ops/cpu/rope_kernel.h"

#include <cmath>

#include "asterism/ops/cpu/float_codes.h"
#include "asterism/ops/cpu/lanes.h"

namespace asterism::ops::cpu {

namespace {

template <typename T>
inline T load(T value) {
  return value;
}

inline float load(uint16_t code) {
  return bf16_value(code);
}

template <typename S, typename T>
inline S store(T value) {
  if constexpr (std::is_same_v<S, uint16_t>) {
    return bf16_code(value);
  } else {
    return value;
  }
}

// Writes value(i), turned where channels turn.
template <typename S, typename T, typename Value>
inline void write_turned(const Rotation<T>& rotation, int64_t row, Value value, S* out) {
  const int64_t still = rotation.width - 2 * rotation.half;
  const T* cos = rotation.cos + row / rotation.heads * rotation.half;
  const T* sin = rotation.sin + row / rotation.heads * rotation.half;
  const T sign = rotation.inverse ? T(-1) : T(1);
  for (int64_t i = 0; i < still; ++i) out[i] = store<S>(value(i));
  for (int64_t i = 0; i < rotation.half; ++i) {
    const T a = value(still + 2 * i), b = value(still + 2 * i + 1), s = sign * sin[i];
    out[still + 2 * i] = store<S>(a * cos[i] - b * s);
    out[still + 2 * i + 1] = store<S>(a * s + b * cos[i]);
  }
}

}  // namespace

template <typename S, typename T>
void rotate_rows(const Rotation<T>& rotation, const S* x, S* out, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const S* in = x + row * rotation.width;
    write_turned(
        rotation, row, [in](int64_t i) -> T { return load(in[i]); }, out + row * rotation.width);
  }
}

template <typename S, typename T>
void norm_rotate_rows(const Rotation<T>& rotation, double eps, const S* x, S* out, T* rstd, int64_t begin,
                      int64_t end) {
  const int64_t n = rotation.width;
  for (int64_t row = begin; row < end; ++row) {
    const S* in = x + row * n;
    const double squares = sum_terms<T>(n, [in](int64_t i) -> T { return load(in[i]) * load(in[i]); });
    const T scale = static_cast<T>(1.0 / std::sqrt(squares / static_cast<double>(n) + eps));
    rstd[row] = scale;
    write_turned(
        rotation, row, [in, scale](int64_t i) -> T { return load(in[i]) * scale; }, out + row * n);
  }
}

template <typename S, typename T>
void norm_rotate_grad_rows(const Rotation<T>& rotation, const S* y, const T* rstd, const S* grad_y, S* grad_x,
                           int64_t begin, int64_t end) {
  const int64_t n = rotation.width;
  Rotation<T> back = rotation;
  back.inverse = !rotation.inverse;
  for (int64_t row = begin; row < end; ++row) {
    const S *values = y + row * n, *grad = grad_y + row * n;
    const double dot = sum_terms<T>(n, [=](int64_t i) -> T { return load(values[i]) * load(grad[i]); });
    const T mean = static_cast<T>(dot / static_cast<double>(n)), scale = rstd[row];
    write_turned(
        back, row, [=](int64_t i) -> T { return scale * (load(grad[i]) - load(values[i]) * mean); }, grad_x + row * n);
  }
}

template void rotate_rows(const Rotation<float>&, const float*, float*, int64_t, int64_t);
template void rotate_rows(const Rotation<float>&, const uint16_t*, uint16_t*, int64_t, int64_t);
template void rotate_rows(const Rotation<double>&, const double*, double*, int64_t, int64_t);
template void norm_rotate_rows(const Rotation<float>&, double, const float*, float*, float*, int64_t, int64_t);
template void norm_rotate_rows(const Rotation<float>&, double, const uint16_t*, uint16_t*, float*, int64_t, int64_t);
template void norm_rotate_rows(const Rotation<double>&, double, const double*, double*, double*, int64_t, int64_t);
template void norm_rotate_grad_rows(const Rotation<float>&, const float*, const float*, const float*, float*, int64_t,
                                    int64_t);
template void norm_rotate_grad_rows(const Rotation<float>&, const uint16_t*, const float*, const uint16_t*, uint16_t*,
                                    int64_t, int64_t);
template void norm_rotate_grad_rows(const Rotation<double>&, const double*, const double*, const double*, double*,
                                    int64_t, int64_t);

}  // namespace asterism::ops::cpu
