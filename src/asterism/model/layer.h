#pragma once

#include "asterism/model/model.h"

namespace asterism::model {

/// Both halves of a layer, each one autograd node; their auxiliary losses are added to `sums`.
at::Tensor run_layer(const Config& config, const LayerWeights& weights, const LayerSpec& spec, int64_t layer,
                     const at::Tensor& x_TND, const std::shared_ptr<const StreamContext>& context, Recompute recompute,
                     const std::shared_ptr<LayerDecisions>& decisions, LossSums& sums);

/// `sum` + `value`, where either may be undefined.
void add_loss(at::Tensor& sum, const at::Tensor& value);

}  // namespace asterism::model
