#pragma once

#include <functional>
#include <vector>

#include "asterism/model/block.h"

namespace asterism::model {

/// What a block half keeps for its backward pass.
enum class Recompute {
  kBlocks,  // its input and its decisions; the half is run again in the backward
  kNone,    // all activations
};

/// A half with its tensors taken out: `run(x, slots)` computes it with `slots` in place of the ones it was built with.
struct HalfTask {
  std::function<HalfOutput(const at::Tensor& x_TND, const std::vector<at::Tensor>& slots)> run;
  std::vector<at::Tensor> slots;
};

/// Runs a half as one autograd node: forward without recording (kBlocks) or with a private graph (kNone), backward by
/// torch::autograd::grad over that run. Both modes make bitwise the same gradients, since every operator is
/// deterministic and decisions are replayed. Slots that require no gradient get none; a slot that the half does not
/// use stays without a gradient. Without gradient recording the half is simply run.
HalfOutput run_half(const HalfTask& task, const at::Tensor& x_TND, Recompute mode);

}  // namespace asterism::model
