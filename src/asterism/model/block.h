#pragma once

#include <optional>

#include "asterism/model/stream_context.h"
#include "asterism/model/weights.h"
#include "asterism/ops/experts.h"

namespace asterism::model {

/// Choices of one layer that must not change when the layer is run again: recomputation replays them, so a tie that
/// falls differently can never give gradients of another function. Empty fields are made by the first run.
struct LayerDecisions {
  at::Tensor selected_TK;  // the indexer's choice, sparse layers
  at::Tensor expert_TK;    // experts of each token
  std::optional<ops::Dispatch> dispatch;
  std::shared_ptr<const ExchangeLayout> exchange;  // in place of dispatch where ranks share the experts
};

struct UnitOutput {
  at::Tensor x_TND;      // the streams after the half
  at::Tensor auxiliary;  // scalar loss sum of this half (indexer KL, balance), undefined when not asked for
};

/// mHC pre -> RMSNorm -> attention -> mHC post (model-spec 2, 3.3). x_TND [T, N, D] in the compute type. `kept`:
/// attention and its output projection.
UnitOutput attention_half(const AttentionHalf& weights, const LayerSpec& spec, int64_t layer, const at::Tensor& x_TND,
                          const StreamContext& context, LayerDecisions& decisions, ops::KeptResults& kept);

/// mHC pre -> RMSNorm -> routed and shared experts -> mHC post (3.3, 4). `kept`: the routed experts, where this rank
/// has all of them, and the output of the shared one.
UnitOutput moe_half(const MoeHalf& weights, const LayerSpec& spec, int64_t layer, const at::Tensor& x_TND,
                    const StreamContext& context, LayerDecisions& decisions, ops::KeptResults& kept);

}  // namespace asterism::model
