#pragma once

#include <functional>
#include <vector>

#include "asterism/model/block.h"

namespace asterism::model {

/// What a unit keeps for its backward pass.
enum class Recompute {
  kBlocks,     // its input and its decisions; the unit is run again in the backward
  kSelective,  // these and the results of attention, experts and output projections, which are not computed again
  kNone,       // all activations
};

/// A unit of the model (half of a block, embedding, head) with its tensors taken out: `run(x, slots)` computes it with
/// `slots` in place of the ones it was built with, the costly parts of it through `kept`.
struct UnitTask {
  std::function<UnitOutput(const at::Tensor& x_TND, const std::vector<at::Tensor>& slots, ops::KeptResults& kept)> run;
  std::vector<at::Tensor> slots;
  // Where ranks share the weights: the slots are gathered for every run and dropped after it (kNone: after the
  // backward), and their gradients go there. `slots` is then empty.
  std::shared_ptr<UnitSource> source = nullptr;
};

/// Runs a unit as one autograd node: forward without recording (kBlocks, kSelective) or with a private graph (kNone),
/// backward by torch::autograd::grad over that run. All modes make bitwise the same gradients, since every operator is
/// deterministic and decisions are replayed. Slots that require no gradient get none; a slot that the unit does not
/// use stays without a gradient. Without gradient recording the unit is simply run.
UnitOutput run_unit(const UnitTask& task, const at::Tensor& x_TND, Recompute mode);

}  // namespace asterism::model
