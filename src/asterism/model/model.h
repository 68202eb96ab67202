#pragma once

#include <memory>
#include <vector>

#include "asterism/model/recompute.h"

namespace asterism::model {

struct Model {
  Config config;
  Weights weights;
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

/// Collapse of the streams and final norm: [T, D], what the head multiplies (model-spec 3.4).
at::Tensor final_hidden(const Model& model, const at::Tensor& x_TND);

/// All losses of a micro-batch, ready for backward.
LossSums forward_loss(const Model& model, const TokenBatch& batch, const ForwardOptions& options,
                      const LossOptions& loss = {});

/// Logits [T, V], fp32 (fp64). For tests, comparison and generation: training never makes them whole.
at::Tensor forward_logits(const Model& model, const TokenBatch& batch, const ForwardOptions& options);

}  // namespace asterism::model
