#pragma once

#include <ATen/ATen.h>

#include "asterism/ops/rope.h"

namespace asterism::ops {

/// rope(rms_norm(x, {}, eps), table) in one pass each way: the norm without weight of the query heads and the rotation
/// that follows it (model-spec 2.3). x [M, H, P] or [M, P] in fp32, fp64 or bf16 with P >= the table's width; returns a
/// new tensor of the same shape and type, computed in fp32 (fp64), rounded once. Differentiable in x. Keeps the result,
/// which attention keeps anyway, and one number per row, but not x: a rotation can be undone. M may be 0.
at::Tensor rms_norm_rope(const at::Tensor& x, double eps, const RopeTable& table);

}  // namespace asterism::ops
