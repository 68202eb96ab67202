#pragma once

#include "asterism/model/stream_context.h"
#include "asterism/model/weights.h"

namespace asterism::model {

/// Names a projection inside its layer for the dropout stream; the numbers are part of reproducibility.
enum class ProjectionId : uint64_t {
  kQueryA = 0,
  kQueryB = 1,
  kKeyValue = 2,
  kOutputB = 3,
  kSharedGate = 4,
  kSharedUp = 5,
  kSharedDown = 6,
  kCompressorValue = 7,
  kCompressorGate = 8,
  kIndexerValue = 9,
  kIndexerGate = 10,
  kIndexerQuery = 11,
  kIndexerWeight = 12,
  kRouter = 13,
};

/// x Wᵀ with the projection's LoRA, when it has one, and its dropout, when training. `kept`: as in ops::linear.
at::Tensor project(const at::Tensor& x_TK, const Projection& projection, int64_t layer, ProjectionId id,
                   const StreamContext& context, ops::Kept* kept = nullptr);

}  // namespace asterism::model
