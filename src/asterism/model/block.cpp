#include "asterism/model/block.h"

#include "asterism/model/project.h"
#include "asterism/ops/compressor.h"
#include "asterism/ops/hyper_connection.h"
#include "asterism/ops/indexer.h"
#include "asterism/ops/indexer_kl.h"
#include "asterism/ops/linear.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/rms_norm.h"
#include "asterism/ops/rms_norm_rope.h"
#include "asterism/ops/rope.h"
#include "asterism/ops/router.h"
#include "asterism/ops/sparse_attention.h"
#include "asterism/ops/swiglu.h"

namespace asterism::model {

namespace {

// The compressor's arithmetic is fp32 in every mode (model-spec 7.8), so its projections read the input widened.
at::Tensor compressed_entries(const CompressorWeights& w, bool overlap, const at::Tensor& wide_TD, int64_t layer,
                              ProjectionId value_id, ProjectionId gate_id, const StreamContext& context,
                              const StreamContext::Compression& compression) {
  const at::Tensor u_TC = project(wide_TD, w.kv_proj, layer, value_id, context);
  const at::Tensor g_TC = project(wide_TD, w.gate_proj, layer, gate_id, context);
  return ops::compress(u_TC, g_TC, w.position_bias, w.kv_norm, context.batch.documents, compression.windows, overlap,
                       compression.table_C, context.config.rms_norm_eps);
}

// The indexer's query, key and head weights (2.6), in fp32.
struct IndexerInputs {
  at::Tensor q_THI, key_CI, weight_TH;
};

IndexerInputs indexer_inputs(const IndexerWeights& w, const at::Tensor& y_TD, const at::Tensor& qr_TQ, int64_t layer,
                             const StreamContext& context, const StreamContext::Compression& compression) {
  const Config& c = context.config;
  const at::ScalarType wide = ops::sum_type(y_TD.scalar_type());
  const at::Tensor wide_TD = y_TD.to(wide);
  IndexerInputs inputs;
  const at::Tensor q = project(qr_TQ.to(wide), w.q_b_proj, layer, ProjectionId::kIndexerQuery, context);
  inputs.q_THI = ops::rope(q.view({-1, c.index_heads, c.index_head_dim}), context.compress_T);
  inputs.key_CI = compressed_entries(w.compressor, /*overlap=*/true, wide_TD, layer, ProjectionId::kIndexerValue,
                                     ProjectionId::kIndexerGate, context, compression);
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.index_head_dim * c.index_heads));
  inputs.weight_TH = project(wide_TD, w.weights_proj, layer, ProjectionId::kIndexerWeight, context) * scale;
  return inputs;
}

// The selection carries no gradient: it runs unrecorded unless the indexer's own loss needs the graph.
at::Tensor select_entries(const IndexerInputs& inputs, const StreamContext& context,
                          const StreamContext::Compression& compression) {
  const at::NoGradGuard no_grad;
  return ops::index_topk(inputs.q_THI, inputs.key_CI, inputs.weight_TH, compression.windows, context.config.index_topk);
}

struct AttentionOutput {
  at::Tensor out_TD;
  at::Tensor kl;
};

AttentionOutput attention(const AttentionWeights& w, const LayerSpec& spec, int64_t layer, const at::Tensor& y_TD,
                          const StreamContext& context, LayerDecisions& decisions, ops::KeptResults& kept) {
  const Config& c = context.config;
  const bool sliding = spec.attention == AttentionKind::kSliding, sparse = spec.attention == AttentionKind::kSparse;
  const ops::RopeTable& table_T = sliding ? context.main_T : context.compress_T;
  const auto* compression = sliding ? nullptr : &context.compression.at(spec.ratio);

  const at::Tensor qr_TQ =
      ops::rms_norm(project(y_TD, w.q_a_proj, layer, ProjectionId::kQueryA, context), w.q_a_norm, c.rms_norm_eps);
  at::Tensor q_THP =
      project(qr_TQ, w.q_b_proj, layer, ProjectionId::kQueryB, context).view({-1, c.num_heads, c.head_dim});
  q_THP = ops::rms_norm_rope(q_THP, c.rms_norm_eps, table_T);
  at::Tensor kv_TP = project(y_TD, w.kv_proj, layer, ProjectionId::kKeyValue, context);
  kv_TP = ops::rope(ops::rms_norm(kv_TP, w.kv_norm, c.rms_norm_eps), table_T);

  at::Tensor entries_CP;
  if (!sliding) {
    entries_CP =
        compressed_entries(*w.compressor, sparse, y_TD.to(ops::sum_type(y_TD.scalar_type())), layer,
                           ProjectionId::kCompressorValue, ProjectionId::kCompressorGate, context, *compression)
            .to(y_TD.scalar_type());
    context.probe(layer, "compressed_kv", entries_CP);
  }
  IndexerInputs student;
  const bool kl = sparse && context.options.indexer_kl;
  const bool select = sparse && !context.options.dense_attention;
  if (kl || (select && !decisions.selected_TK.defined())) {
    const at::AutoGradMode record(at::GradMode::is_enabled() && kl);
    // The indexer trains on its own loss only: nothing flows back into the layer's input or query (7.5).
    student = indexer_inputs(*w.indexer, y_TD.detach(), qr_TQ.detach(), layer, context, *compression);
    context.probe(layer, "index_keys", student.key_CI);
  }
  if (select && !decisions.selected_TK.defined()) {
    decisions.selected_TK = select_entries(student, context, *compression);
  }
  const at::Tensor selected_TK = select ? decisions.selected_TK : at::Tensor();
  if (context.options.probe && select) {
    context.probe(layer, "index_topk", selected_TK);
    context.probe(layer, "index_scores",
                  ops::index_scores(student.q_THI, student.key_CI, student.weight_TH, compression->windows));
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  // Keys are values, so values carry the rotation of their position: the query's is undone on the way out (2.8).
  const ops::SparseAttentionResult attended = ops::sparse_attention(
      q_THP, kv_TP, entries_CP, selected_TK, w.sinks, context.batch.documents,
      sliding ? nullptr : &compression->windows, c.sliding_window, scale, table_T, kept.at("attention"));

  AttentionOutput output;
  if (kl) {
    const ops::IndexerTeacher teacher{q_THP.detach(), entries_CP.detach(), attended.lse_TH.detach(), scale};
    output.kl =
        ops::indexer_kl(teacher, student.q_THI, student.key_CI, student.weight_TH, selected_TK, compression->windows);
  }
  const at::Tensor o_TGK = attended.o_THP.view({-1, c.o_groups, c.num_heads * c.head_dim / c.o_groups});
  const at::Tensor low_TM = ops::grouped_linear(o_TGK, w.o_a_proj.weight, w.o_a_proj.lora);
  output.out_TD = project(low_TM, w.o_b_proj, layer, ProjectionId::kOutputB, context, kept.at("attention output"));
  return output;
}

at::Tensor routed_experts(const MoeWeights& w, const ExpertCall& call, const StreamContext& context,
                          LayerDecisions& decisions, ops::KeptResults& kept) {
  const Config& c = context.config;
  if (context.placement) return context.placement->run_experts(call, decisions);
  call.meanwhile();
  if (!decisions.dispatch) decisions.dispatch = ops::make_dispatch(decisions.expert_TK, c.num_experts);
  return ops::grouped_experts(call.y_TD, call.weight_TK, *decisions.dispatch, w.gate_up.weight, w.down.weight,
                              call.limit, w.gate_up.lora, w.down.lora, kept.at("routed experts"));
}

at::Tensor shared_expert(const MoeWeights& w, int64_t layer, const at::Tensor& y_TD, const StreamContext& context,
                         ops::KeptResults& kept) {
  const at::Tensor gate_TI = project(y_TD, w.shared_gate, layer, ProjectionId::kSharedGate, context);
  const at::Tensor up_TI = project(y_TD, w.shared_up, layer, ProjectionId::kSharedUp, context);
  const at::Tensor active_TI = ops::swiglu(at::cat({gate_TI, up_TI}, 1), {}, context.config.swiglu_limit);
  return project(active_TI, w.shared_down, layer, ProjectionId::kSharedDown, context, kept.at("shared expert"));
}

}  // namespace

UnitOutput attention_half(const AttentionHalf& weights, const LayerSpec& spec, int64_t layer, const at::Tensor& x_TND,
                          const StreamContext& context, LayerDecisions& decisions, ops::KeptResults& kept) {
  const Config& c = context.config;
  const auto hc =
      ops::hyper_connection_pre(x_TND, weights.hc.fn, weights.hc.base, weights.hc.scale, c.hyper_connection());
  const at::Tensor y_TD = ops::rms_norm(hc.y_TD, weights.norm, c.rms_norm_eps);
  context.probe(layer, "attn_hc.post", hc.post_TN);
  context.probe(layer, "attn_hc.comb", hc.comb_TNN);
  context.probe(layer, "attn_in", y_TD);
  const AttentionOutput output = attention(weights.attention, spec, layer, y_TD, context, decisions, kept);
  context.probe(layer, "attn_out", output.out_TD);
  return {ops::hyper_connection_post(x_TND, output.out_TD, hc.post_TN, hc.comb_TNN), output.kl};
}

UnitOutput moe_half(const MoeHalf& weights, const LayerSpec& spec, int64_t layer, const at::Tensor& x_TND,
                    const StreamContext& context, LayerDecisions& decisions, ops::KeptResults& kept) {
  const Config& c = context.config;
  const MoeWeights& w = weights.moe;
  const auto hc =
      ops::hyper_connection_pre(x_TND, weights.hc.fn, weights.hc.base, weights.hc.scale, c.hyper_connection());
  const at::Tensor y_TD = ops::rms_norm(hc.y_TD, weights.norm, c.rms_norm_eps);
  context.probe(layer, "ffn_hc.post", hc.post_TN);
  context.probe(layer, "ffn_hc.comb", hc.comb_TNN);
  context.probe(layer, "mlp_in", y_TD);

  const at::Tensor logits_TE =
      project(y_TD.to(ops::sum_type(y_TD.scalar_type())), w.gate, layer, ProjectionId::kRouter, context);
  if (!decisions.expert_TK.defined()) {
    decisions.expert_TK = spec.router == RouterKind::kHash
                              ? ops::hash_experts(w.tid2eid, context.batch.id_T)
                              : ops::choose_experts(logits_TE.detach(), w.bias, c.experts_per_token);
  }
  const at::Tensor weight_TK = ops::router_weights(logits_TE, decisions.expert_TK, c.routed_scaling_factor);
  context.probe(layer, "router_logits", logits_TE);
  context.probe(layer, "router_ids", decisions.expert_TK);
  context.probe(layer, "router_weights", weight_TK);

  at::Tensor shared_TD;
  const ExpertCall call{layer, y_TD, weight_TK, c.swiglu_limit,
                        [&] { shared_TD = shared_expert(w, layer, y_TD, context, kept); }};
  const at::Tensor out_TD = routed_experts(w, call, context, decisions, kept) + shared_TD;
  context.probe(layer, "mlp_out", out_TD);

  UnitOutput output;
  // A hash layer's choice is fixed: the loss would only push its gate (7.3).
  if (context.options.balance && spec.router == RouterKind::kTopK) {
    output.auxiliary = ops::balance_loss(logits_TE, decisions.expert_TK, context.batch.documents);
  }
  output.x_TND = ops::hyper_connection_post(x_TND, out_TD, hc.post_TN, hc.comb_TNN);
  context.probe(layer, "streams", output.x_TND);
  return output;
}

}  // namespace asterism::model
