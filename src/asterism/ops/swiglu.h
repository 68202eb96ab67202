#pragma once

#include <ATen/ATen.h>

namespace asterism::ops {

/// silu(min(g, limit)) * clamp(u, -limit, limit) * row_weight (model-spec 4.2): the activation of routed and shared
/// experts. gate_up [R, 2I]: g are columns 0 .. I-1, u the rest. row_weight [R] fp32 (fp64) or undefined (= 1).
/// limit <= 0 switches both clamps off; at equality the gradient passes. fp32 inside (fp64 for fp64), one rounding.
/// Returns [R, I] in the type of gate_up. Differentiable in gate_up and row_weight. R may be 0.
at::Tensor swiglu(const at::Tensor& gate_up_RJ, const at::Tensor& row_weight_R, double limit);

/// The values of swiglu and their gradients for nodes that keep gate_up themselves. Not differentiable.
at::Tensor swiglu_values(const at::Tensor& gate_up_RJ, const at::Tensor& row_weight_R, double limit);

struct SwigluGradients {
  at::Tensor gate_up, row_weight;  // in the types of the inputs; undefined when not wanted
};
SwigluGradients swiglu_gradients(const at::Tensor& grad_RI, const at::Tensor& gate_up_RJ,
                                 const at::Tensor& row_weight_R, double limit, bool want_gate_up, bool want_row_weight);

}  // namespace asterism::ops
