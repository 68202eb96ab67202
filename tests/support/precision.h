#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

namespace asterism::testing {

/// The outputs of `function` at `inputs`, followed by the gradients of all inputs under fixed random cotangents.
std::vector<at::Tensor> outputs_and_gradients(
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& function,
    const std::vector<at::Tensor>& inputs);

/// |a - b| over |b|, Euclidean norms in fp64; |a| when b is zero.
double relative_l2(const at::Tensor& a, const at::Tensor& b);

/// Evaluates `compute` with one and with two threads and expects equal bits in every tensor.
void expect_threads_do_not_matter(const std::function<std::vector<at::Tensor>()>& compute);

}  // namespace asterism::testing
