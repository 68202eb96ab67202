#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "asterism/model/recompute.h"

namespace asterism::model {

struct Model {
  Config config;
  Weights weights;
  // Where ranks share the weights, what stands in `weights` are the outlines: update scales and formats, no values.
  std::shared_ptr<Placement> placement = nullptr;
};

/// The sums that make up a step's loss; scalars in fp32 (fp64), undefined when not asked for. The caller divides each
/// once by its count over the whole step.
struct LossSums {
  at::Tensor token_loss;                                   // sum over trained tokens
  at::Tensor mtp_loss;                                     // sum over MTP targets
  at::Tensor balance_loss;                                 // sum over documents and learned-router layers
  at::Tensor indexer_loss;                                 // sum over query tokens and sparse layers
  std::vector<std::shared_ptr<LayerDecisions>> decisions;  // of the trunk's layers
};

struct LossOptions {
  Recompute recompute = Recompute::kBlocks;
  bool mtp = false;
  int64_t logits_bytes = int64_t{64} << 20;  // size of a chunk of logits in head and loss
};

/// Streams [T, N, D] leaving the last layer; loss sums of the layers are added to `sums`. `decisions` given in
/// `sums.decisions` are replayed.
at::Tensor forward_trunk(const Model& model, const std::shared_ptr<const StreamContext>& context, Recompute recompute,
                         LossSums& sums);

/// What is made of the final hidden state [T, D] and the head's matrix [V, D]: a loss, logits.
using HeadUse = std::function<at::Tensor(const at::Tensor& hidden_TD, const at::Tensor& head_VD)>;

/// Collapse of the streams, final norm (model-spec 3.4) and `use` of the result, as one unit.
at::Tensor run_head(const Model& model, const at::Tensor& x_TND, const HeadUse& use);

/// All losses of a micro-batch, ready for backward.
LossSums forward_loss(const Model& model, const TokenBatch& batch, const ForwardOptions& options,
                      const LossOptions& loss = {});

/// Logits [T, V], fp32 (fp64). For tests, comparison and generation: training never makes them whole.
at::Tensor forward_logits(const Model& model, const TokenBatch& batch, const ForwardOptions& options);

}  // namespace asterism::model
