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

// The slots of embedding and head in the order in which they are shared.
std::vector<at::Tensor> head_slots(const Weights& w) {
  return {w.hc_head.fn, w.hc_head.base, w.hc_head.scale, w.norm, w.lm_head};
}

UnitTask make_task(const Model& model, UnitKind kind, const std::vector<at::Tensor>& slots) {
  UnitTask task;
  if (model.placement) {
    task.source = model.placement->unit({kind, 0});
  } else {
    task.slots = slots;
  }
  return task;
}

at::Tensor embed_streams(const Model& model, const std::shared_ptr<const StreamContext>& context) {
  UnitTask task = make_task(model, UnitKind::kEmbedding, {model.weights.embed});
  task.run = [context](const at::Tensor& /*nothing*/, const std::vector<at::Tensor>& slots, ops::KeptResults&) {
    const at::Tensor e_TD = at::embedding(slots[0], context->batch.id_T).to(context->options.compute);
    return UnitOutput{e_TD.unsqueeze(1).expand({-1, context->config.num_streams, -1}).contiguous(), {}};
  };
  return run_unit(task, at::empty({0}), Recompute::kNone).x_TND;
}

}  // namespace

at::Tensor forward_trunk(const Model& model, const std::shared_ptr<const StreamContext>& context, Recompute recompute,
                         LossSums& sums) {
  const Config& config = model.config;
  if (sums.decisions.empty()) {
    for (int64_t i = 0; i < config.num_layers(); ++i) sums.decisions.push_back(std::make_shared<LayerDecisions>());
  }
  at::Tensor x_TND = embed_streams(model, context);
  if (context->options.probe) context->options.probe("embed", x_TND.select(1, 0));
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    x_TND = run_layer(config, model.weights.layers[i], config.layers[i], i, x_TND, context, recompute,
                      sums.decisions[i], sums);
  }
  return x_TND;
}

at::Tensor run_head(const Model& model, const at::Tensor& x_TND, const HeadUse& use) {
  UnitTask task = make_task(model, UnitKind::kHead, head_slots(model.weights));
  task.run = [&config = model.config, use](const at::Tensor& x, const std::vector<at::Tensor>& slots,
                                           ops::KeptResults&) {
    const at::Tensor h_TD = ops::hyper_connection_head(x, slots[0], slots[1], slots[2], config.hyper_connection());
    return UnitOutput{use(ops::rms_norm(h_TD, slots[3], config.rms_norm_eps), slots[4]), {}};
  };
  // Recomputing it would multiply by the largest matrix of the model twice.
  return run_unit(task, x_TND, Recompute::kNone).x_TND;
}

LossSums forward_loss(const Model& model, const TokenBatch& batch, const ForwardOptions& options,
                      const LossOptions& loss) {
  TORCH_CHECK(!loss.mtp || model.config.num_mtp_layers > 0, "[model] the MTP loss needs a model with an MTP layer");
  TORCH_CHECK(!loss.mtp || !model.placement, "[model] the MTP layer cannot be shared by ranks yet");
  check_ids(model.config, batch);
  const auto context = make_stream_context(model.config, batch, options, model.placement);
  LossSums sums;
  const at::Tensor x_TND = forward_trunk(model, context, loss.recompute, sums);
  sums.token_loss = run_head(model, x_TND, [&](const at::Tensor& hidden_TD, const at::Tensor& head_VD) {
    return ops::linear_cross_entropy(hidden_TD, head_VD, batch.target_T, batch.weight_T, loss.logits_bytes);
  });
  if (loss.mtp) {
    const at::Tensor hidden_TD = mtp_hidden(model, x_TND, context, loss.recompute, sums);
    sums.mtp_loss = ops::linear_cross_entropy(hidden_TD, model.weights.lm_head, batch.mtp_target_T, batch.mtp_weight_T,
                                              loss.logits_bytes);
  }
  return sums;
}

at::Tensor forward_logits(const Model& model, const TokenBatch& batch, const ForwardOptions& options) {
  check_ids(model.config, batch);
  const auto context = make_stream_context(model.config, batch, options, model.placement);
  LossSums sums;
  const at::Tensor x_TND = forward_trunk(model, context, Recompute::kBlocks, sums);
  return run_head(model, x_TND, [&](const at::Tensor& hidden_TD, const at::Tensor& head_VD) {
    if (options.probe) options.probe("final_hidden", hidden_TD);
    return ops::matmul_nt(hidden_TD, head_VD, ops::sum_type(options.compute));
  });
}

}  // namespace asterism::model
