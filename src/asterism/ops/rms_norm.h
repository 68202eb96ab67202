#pragma once

#include <ATen/ATen.h>

namespace asterism::ops {

/// y = x * rsqrt(mean(x²) + eps) * weight over the last dimension (model-spec 2.1). Statistics and the multiplication
/// by the weight in fp32 (fp64 for fp64), one rounding to the type of x at the end. x [..., n]; weight [n] or undefined
/// (no weight), fp32, fp64 or bf16. Differentiable in x and weight. Rows may be 0.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace asterism::ops
