#include "asterism/model/mtp.h"

#include "asterism/model/layer.h"
#include "asterism/ops/linear.h"
#include "asterism/ops/rms_norm.h"

namespace asterism::model {

namespace {

// The id after each token; the last one of a document, whose prediction is never scored, takes the document's first, so
// that nothing at all depends on another document.
at::Tensor next_ids(const TokenBatch& batch) {
  at::Tensor next_T = at::empty_like(batch.id_T);
  for (int64_t d = 0; d < batch.documents.num_documents(); ++d) {
    const int64_t begin = batch.documents.offsets[d], end = batch.documents.offsets[d + 1];
    next_T.slice(0, begin, end).copy_(at::roll(batch.id_T.slice(0, begin, end), -1));
  }
  return next_T;
}

}  // namespace

at::Tensor mtp_hidden(const Model& model, const at::Tensor& trunk_TND,
                      const std::shared_ptr<const StreamContext>& context, Recompute recompute, LossSums& sums) {
  const Config& config = model.config;
  const MtpWeights& w = model.weights.mtp.at(0);
  const at::Tensor embed_TD = at::embedding(model.weights.embed, next_ids(context->batch)).to(context->options.compute);
  const at::Tensor e_TD = ops::linear(ops::rms_norm(embed_TD, w.enorm, config.rms_norm_eps), w.e_proj.weight);
  const at::Tensor normed_TND = ops::rms_norm(trunk_TND, w.hnorm, config.rms_norm_eps);
  const at::Tensor h_TND = ops::linear(normed_TND.flatten(0, 1), w.h_proj.weight).view_as(trunk_TND);
  const at::Tensor x_TND = (e_TD.unsqueeze(1) + h_TND).contiguous();
  const at::Tensor out_TND = run_layer(config, w.layer, Config::mtp_layer(), config.num_layers(), x_TND, context,
                                       recompute, std::make_shared<LayerDecisions>(), sums);
  if (context->options.probe) context->options.probe("mtp_streams", out_TND);
  const at::Tensor h_TD =
      ops::hyper_connection_head(out_TND, w.hc_head.fn, w.hc_head.base, w.hc_head.scale, config.hyper_connection());
  return ops::rms_norm(h_TD, w.norm, config.rms_norm_eps);
}

}  // namespace asterism::model
