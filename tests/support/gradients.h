#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace asterism::testing {

using Inputs = std::vector<at::Tensor>;
using Outputs = std::vector<at::Tensor>;

/// Compares the gradients that autograd returns for `function` with central differences, fp64. The outputs are
/// contracted with fixed random cotangents, so that every output element counts. Inputs that do not require gradients
/// are constants. Expects |analytic - numeric| <= tolerance * max(1, largest numeric entry of that input), and reports
/// the input, element and both values on failure (through GoogleTest).
/// A gradient that comes back undefined fails: an operator returns zeros, so that later reductions never miss a tensor.
void expect_gradients_match(const std::function<Outputs(const Inputs&)>& function, const Inputs& inputs,
                            double tolerance = 1e-6, double step = 1e-5);

/// fp64 normal values from a named stream (deterministic), times `scale`.
at::Tensor random_tensor(at::IntArrayRef shape, const std::string& name, double scale = 1.0);

/// random_tensor as a leaf that records gradients.
at::Tensor random_leaf(at::IntArrayRef shape, const std::string& name);

/// Largest |a - b| over the largest |b| (0 when both are empty or zero).
double relative_difference(const at::Tensor& a, const at::Tensor& b);

}  // namespace asterism::testing
