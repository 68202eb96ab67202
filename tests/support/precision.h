#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/support/gradients.h"

namespace asterism::testing {

/// |a - b| over |b|, Euclidean norms; 0 when both are zero or empty.
double relative_l2(const at::Tensor& a, const at::Tensor& b);

/// Runs `function` on the inputs rounded to `types` (one per input; integer and undefined inputs stay as they are), in
/// those types and in fp64, and compares outputs and gradients in relative L2. Cotangents are fixed random numbers,
/// rounded to the type of the first input. Gradients must come back in the type of their input.
void expect_precision(const std::function<Outputs(const Inputs&)>& function, const Inputs& inputs,
                      const std::vector<at::ScalarType>& types, double output_tolerance, double gradient_tolerance);

/// `expect_precision` for fp32 (1e-5, 2e-5) and for bf16 inputs (5e-3, 1e-2) whose inputs from number `first_weight` on
/// are bf16 or fp32.
void expect_all_precisions(const std::function<Outputs(const Inputs&)>& function, const Inputs& inputs,
                           size_t first_weight);

/// The outputs of `function` at `inputs`, followed by the gradients of all inputs under fixed random cotangents.
std::vector<at::Tensor> outputs_and_gradients(const std::function<Outputs(const Inputs&)>& function,
                                              const Inputs& inputs);

/// Evaluates `compute` with one and with two threads and expects equal bits in every tensor.
void expect_threads_do_not_matter(const std::function<std::vector<at::Tensor>()>& compute);

}  // namespace asterism::testing
