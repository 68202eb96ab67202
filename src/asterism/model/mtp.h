#pragma once

#include "asterism/model/model.h"

namespace asterism::model {

/// The multi-token-prediction block (model-spec 5.2): reads the streams leaving the trunk and the embedding of the next
/// token, runs one window-only layer with a learned router, and predicts the token after the next. Returns its hidden
/// state [T, D], to be multiplied by the shared head. At the last position of a document the document's first token
/// stands for the next one; nothing that is scored depends on it. Balance loss of its router is added to `sums`.
at::Tensor mtp_hidden(const Model& model, const at::Tensor& trunk_TND,
                      const std::shared_ptr<const StreamContext>& context, Recompute recompute, LossSums& sums);

}  // namespace asterism::model
