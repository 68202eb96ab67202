#include "asterism/model/stream_context.h"

#include "asterism/ops/matmul.h"

namespace asterism::model {

void StreamContext::probe(int64_t layer, std::string_view name, const at::Tensor& value) const {
  if (!options.probe) return;
  std::string full = "layer." + std::to_string(layer) + ".";
  full += name;
  options.probe(full, value);
}

std::shared_ptr<const StreamContext> make_stream_context(const Config& config, const TokenBatch& batch,
                                                         const ForwardOptions& options,
                                                         const std::shared_ptr<Placement>& placement) {
  auto shared = std::make_shared<StreamContext>(StreamContext{config, batch, options, {}, {}, {}, placement});
  StreamContext& context = *shared;
  const at::ScalarType type = ops::sum_type(options.compute);
  const at::Tensor& position_T = batch.documents.position_T;
  context.main_T = ops::make_rope_table(config.main_rope, position_T, type);
  context.compress_T = ops::make_rope_table(config.compress_rope, position_T, type);
  for (const LayerSpec& layer : config.layers) {
    if (layer.ratio == 0 || context.compression.count(layer.ratio) > 0) continue;
    StreamContext::Compression compression;
    compression.windows = ops::make_windows(batch.documents, layer.ratio);
    compression.table_C = ops::make_rope_table(config.compress_rope, compression.windows.position_C, type);
    context.compression.emplace(layer.ratio, std::move(compression));
  }
  return shared;
}

}  // namespace asterism::model
