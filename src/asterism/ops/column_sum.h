#pragma once

#include <ATen/ATen.h>

namespace asterism::ops {

/// The sum over the rows of x_MN [M, N] (any float type), [N] in sum_type: the gradient of a parameter that every row
/// uses. The order of summation depends on M alone, not on the number of threads, which at::sum does not promise.
/// M may be 0. Not differentiable.
at::Tensor column_sum(const at::Tensor& x_MN);

}  // namespace asterism::ops
