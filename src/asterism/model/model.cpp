#include "asterism/model/model.h"

#include "asterism/model/layer.h"
#include "asterism/model/mtp.h"
#include "asterism/ops/linear_cross_entropy.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/rms_norm.h"

namespace asterism::model {

namespace {

// An id outside the vocabulary would read foreign memory or fail deep inside an operator.
void check_ids(const Config& config, const TokenBatch& batch) {
  if (batch.id_T.numel() == 0) return;
  const int64_t low = batch.id_T.min().item<int64_t>(), high = batch.id_T.max().item<int64_t>();
  TORCH_CHECK(low >= 0 && high < config.vocab_size, "[model] token id ", low < 0 ? low : high,
              " is outside the vocabulary of ", config.vocab_size, " entries");
}

at::Tensor embed_streams(const Model& model, const StreamContext& context) {
  const at::Tensor e_TD = at::embedding(model.weights.embed, context.batch.id_T).to(context.options.compute);
  return e_TD.unsqueeze(1).expand({-1, model.config.num_streams, -1}).contiguous();
}

}  // namespace

at::Tensor forward_trunk(const Model& model, const std::shared_ptr<const StreamContext>& context, Recompute recompute,
                         LossSums& sums) {
  const Config& config = model.config;
  if (sums.decisions.empty()) {
    for (int64_t i = 0; i < config.num_layers(); ++i) sums.decisions.push_back(std::make_shared<LayerDecisions>());
  }
  at::Tensor x_TND = embed_streams(model, *context);
  if (context->options.probe) context->options.probe("embed", x_TND.select(1, 0));
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    x_TND = run_layer(config, model.weights.layers[i], config.layers[i], i, x_TND, context, recompute,
                      sums.decisions[i], sums);
  }
  return x_TND;
}

at::Tensor final_hidden(const Model& model, const at::Tensor& x_TND) {
  const HyperHeadWeights& head = model.weights.hc_head;
  const at::Tensor h_TD =
      ops::hyper_connection_head(x_TND, head.fn, head.base, head.scale, model.config.hyper_connection());
  return ops::rms_norm(h_TD, model.weights.norm, model.config.rms_norm_eps);
}

LossSums forward_loss(const Model& model, const TokenBatch& batch, const ForwardOptions& options,
                      const LossOptions& loss) {
  TORCH_CHECK(!loss.mtp || model.config.num_mtp_layers > 0, "[model] the MTP loss needs a model with an MTP layer");
  check_ids(model.config, batch);
  const auto context = make_stream_context(model.config, batch, options);
  LossSums sums;
  const at::Tensor x_TND = forward_trunk(model, context, loss.recompute, sums);
  sums.token_loss = ops::linear_cross_entropy(final_hidden(model, x_TND), model.weights.lm_head, batch.target_T,
                                              batch.weight_T, loss.logits_bytes);
  if (loss.mtp) {
    const at::Tensor hidden_TD = mtp_hidden(model, x_TND, context, loss.recompute, sums);
    sums.mtp_loss = ops::linear_cross_entropy(hidden_TD, model.weights.lm_head, batch.mtp_target_T, batch.mtp_weight_T,
                                              loss.logits_bytes);
  }
  return sums;
}

at::Tensor forward_logits(const Model& model, const TokenBatch& batch, const ForwardOptions& options) {
  check_ids(model.config, batch);
  const auto context = make_stream_context(model.config, batch, options);
  LossSums sums;
  const at::Tensor x_TND = forward_trunk(model, context, Recompute::kBlocks, sums);
  const at::Tensor hidden_TD = final_hidden(model, x_TND);
  if (options.probe) options.probe("final_hidden", hidden_TD);
  return ops::matmul_nt(hidden_TD, model.weights.lm_head, ops::sum_type(options.compute));
}

}  // namespace asterism::model
