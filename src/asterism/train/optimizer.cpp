#include "asterism/train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "asterism/ops/adamw.h"
#include "asterism/ops/exact_sum.h"

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

namespace {

// Sums over the pieces of dense weights, of which every copy of the model has one, and of experts.
struct PieceSums {
  double dense = 0.0, experts = 0.0;
  ops::ExactSquareSum exact_dense, exact_experts;
};

double sum_over_ranks(PieceSums& own, const parallel::MeshComms& comms, bool strict) {
  if (!strict) {
    const at::Tensor dense = at::full({1}, own.dense, at::kDouble), experts = at::full({1}, own.experts, at::kDouble);
    comms.shard->all_reduce(dense, dist::Reduction::kSum, "gradient norm");
    comms.world->all_reduce(experts, dist::Reduction::kSum, "gradient norm of experts");
    return dense.item<double>() + experts.item<double>();
  }
  const auto add_up = [](ops::ExactSquareSum& sum, dist::Comm& comm, const char* what) {
    const at::Tensor limbs = sum.limbs();
    comm.all_reduce(limbs, dist::Reduction::kSum, what);
    sum.set_limbs(limbs);
  };
  add_up(own.exact_dense, *comms.shard, "gradient norm");
  add_up(own.exact_experts, *comms.world, "gradient norm of experts");
  own.exact_dense.add_limbs(own.exact_experts);
  return own.exact_dense.value();
}

}  // namespace

GradientReport inspect_gradients(const parallel::ShardedModel& shared) {
  const std::vector<parallel::TrainedPiece> pieces = shared.pieces();
  const bool strict = shared.is_strict();
  PieceSums sums;
  for (const parallel::TrainedPiece& piece : pieces) {
    if (!piece.grad.defined()) continue;
    if (strict) {
      (piece.is_expert ? sums.exact_experts : sums.exact_dense).add(piece.grad);
    } else {
      (piece.is_expert ? sums.experts : sums.dense) += ops::sum_of_squares(piece.grad);
    }
  }
  GradientReport report;
  report.norm = std::sqrt(sum_over_ranks(sums, shared.comms(), strict));
  if (std::isfinite(report.norm)) return report;
  const auto is_bad = [](const parallel::TrainedPiece& piece) {
    return piece.grad.defined() && !std::isfinite(ops::sum_of_squares(piece.grad));
  };
  const auto bad = std::ranges::find_if(pieces, is_bad);
  const std::string first_bad = bad == pieces.end() ? std::string() : bad->name;
  for (const std::string& name : shared.comms().world->all_gather_text(first_bad, "gradients that are not finite")) {
    if (report.non_finite.empty()) report.non_finite = name;
  }
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
