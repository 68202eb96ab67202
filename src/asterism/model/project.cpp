#include "asterism/model/project.h"

#include "asterism/core/rng.h"

namespace asterism::model {

at::Tensor project(const at::Tensor& x_TK, const Projection& projection, int64_t layer, ProjectionId id,
                   const StreamContext& context, ops::Kept* kept) {
  std::optional<ops::Dropout> dropout;
  if (context.options.training && projection.lora && projection.lora_dropout > 0) {
    const RandomStream stream(context.options.seed, "lora_dropout",
                              {context.options.step, static_cast<uint64_t>(layer), static_cast<uint64_t>(id)});
    dropout = ops::Dropout{projection.lora_dropout, stream.key(), context.batch.token_key_T};
  }
  return ops::linear(x_TK, projection.weight, projection.lora, dropout, kept);
}

}  // namespace asterism::model
