#include "asterism/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "asterism/ops/adamw.h"

namespace asterism::train {

GradientReport inspect_gradients(const std::vector<Parameter>& parameters) {
  GradientReport report;
  double total = 0.0;
  for (const Parameter& parameter : parameters) {
    const at::Tensor& grad = parameter.value.grad();
    if (!grad.defined()) continue;
    const double squares = ops::sum_of_squares(grad);
    if (!std::isfinite(squares) && report.non_finite.empty()) report.non_finite = parameter.name;
    total += squares;
  }
  report.norm = std::sqrt(total);
  return report;
}

double clip_factor(double norm, double clip_norm) {
  if (clip_norm == 0.0) return 1.0;
  return std::min(1.0, clip_norm / (norm + 1e-6));
}

AdamW::AdamW(const std::vector<Parameter>& parameters, const OptimizerSection& settings)
    : parameters_(parameters), settings_(settings) {
  for (const Parameter& parameter : parameters_) {
    states_.push_back({at::zeros_like(parameter.value), at::zeros_like(parameter.value), 0});
  }
}

void AdamW::step(double lr, double grad_scale) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor value = parameters_[i].value;
    const at::Tensor grad = value.grad();
    if (!grad.defined()) continue;
    State& state = states_[i];
    ops::AdamWArgs args;
    args.lr = lr;
    args.beta1 = settings_.beta1;
    args.beta2 = settings_.beta2;
    args.eps = settings_.eps;
    args.weight_decay = parameters_[i].decays ? settings_.weight_decay : 0.0;
    args.grad_scale = grad_scale;
    args.step = ++state.updates;
    ops::adamw(value.detach(), grad.contiguous(), state.exp_avg, state.exp_avg_sq, args);
    value.mutable_grad() = at::Tensor();
  }
}

}  // namespace asterism::train
