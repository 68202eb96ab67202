#pragma once

#include <ATen/ATen.h>

#include <cstdint>

namespace asterism::ops {

struct AdamWArgs {
  double lr = 0.0;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;  // decoupled (Loshchilov and Hutter 2019)
  double grad_scale = 1.0;    // multiplies the gradient on the way in: the clipping factor
  int64_t step = 1;           // number of this update, from 1: bias correction
};

/// One AdamW update in one pass over memory: param, exp_avg and exp_avg_sq are overwritten, grad is read.
///   p -= lr * wd * p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g²;
///   p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
/// All four contiguous, same shape, fp32 or all fp64.
void adamw(const at::Tensor& param, const at::Tensor& grad, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
           const AdamWArgs& args);

/// Sum of squares in fp64, in an order that does not depend on the number of threads; for the global norm.
double sum_of_squares(const at::Tensor& values);

}  // namespace asterism::ops
