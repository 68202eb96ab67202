#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// Rows of `width` channels of which the last 2 * half turn in interleaved pairs; row r by the angle of token r /
/// heads. S is the storage type: float, double, or uint16_t for bf16. Arithmetic is that of T, fp32 or fp64.
template <typename T>
struct Rotation {
  const T* cos;  // [rows / heads, half]
  const T* sin;
  int64_t heads;
  int64_t width;
  int64_t half;
  bool inverse;
};

/// out = x turned; `out` may be x.
template <typename S, typename T>
void rotate_rows(const Rotation<T>& rotation, const S* x, S* out, int64_t begin, int64_t end);

/// out = x / rms(x) turned, rstd [rows] = 1 / rms(x) = (mean x^2 + eps)^-1/2; `out` may be x.
template <typename S, typename T>
void norm_rotate_rows(const Rotation<T>& rotation, double eps, const S* x, S* out, T* rstd, int64_t begin, int64_t end);

/// The gradient of x from what norm_rotate_rows gave. A turn R keeps products, so with y = R x rstd
///   grad_x = rstd R^-1 (grad_y - y mean(grad_y y)).
template <typename S, typename T>
void norm_rotate_grad_rows(const Rotation<T>& rotation, const S* y, const T* rstd, const S* grad_y, S* grad_x,
                           int64_t begin, int64_t end);

}  // namespace asterism::ops::cpu
