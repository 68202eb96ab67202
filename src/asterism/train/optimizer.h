#pragma once

#include <cstdint>
#include <vector>

#include "asterism/parallel/sharded_model.h"
#include "asterism/train/parameters.h"
#include "asterism/train/recipe.h"

namespace asterism::train {

/// The global gradient: its norm, and the first tensor that is not finite.
struct GradientReport {
  double norm = 0.0;       // L2 over all trained tensors, before clipping
  std::string non_finite;  // name of the first tensor with inf or NaN, empty when all are finite
};

GradientReport inspect_gradients(const std::vector<Parameter>& parameters);

/// Of the pieces that the ranks of a shared model hold: the same report on all ranks. In strict mode the norm does not
/// depend on the mesh in any bit.
GradientReport inspect_gradients(const parallel::ShardedModel& shared);

/// min(1, clip / (norm + 1e-6)), as torch's clip_grad_norm_; 1 when clip is 0.
double clip_factor(double norm, double clip_norm);

/// AdamW over fp32 masters. Moments exist for every parameter from the start, zeros until it gets a gradient, so the
/// set of saved tensors is known in advance. A parameter without a gradient in a step is left alone, not even decayed.
class AdamW {
 public:
  struct State {
    at::Tensor exp_avg, exp_avg_sq;
    int64_t updates = 0;  // of this parameter: bias correction counts those
  };

  AdamW(const std::vector<Parameter>& parameters, const OptimizerSection& settings);

  /// One update with the gradients scaled by `grad_scale`, then drops the gradients.
  void step(double lr, double grad_scale);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  std::vector<State>& states() { return states_; }
  const std::vector<State>& states() const { return states_; }

 private:
  std::vector<Parameter> parameters_;
  OptimizerSection settings_;
  std::vector<State> states_;
};

}  // namespace asterism::train
