#include "asterism/ops/sparse_attention.h"

#include <torch/csrc/autograd/custom_function.h>

#include "asterism/ops/sparse_attention_fused.h"
#include "asterism/ops/sparse_attention_reference.h"

namespace asterism::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Own node: the scores are recomputed block by block from lse, where a composition would keep them.
struct SparseAttention : torch::autograd::Function<SparseAttention> {
  // The optional inputs come last among the tensors, so that the others keep their number in needs_input_grad.
  static variable_list forward(AutogradContext* ctx, const Tensor& q_THP, const Tensor& kv_TP, const Tensor& sink_H,
                               const std::optional<Tensor>& entries_CP, const AttentionInputs& in, bool fused,
                               Kept* kept) {
    const Kept values = kept_or(kept, [&] {
      AttentionOutputs computed = fused ? fused_attention(in) : reference_attention(in);
      return Kept{computed.o_THP, computed.lse_TH};
    });
    const AttentionOutputs out{.o_THP = values[0], .lse_TH = values[1]};
    ctx->mark_non_differentiable({out.lse_TH});
    ctx->save_for_backward({q_THP, kv_TP, sink_H, in.entries_CP, in.selected_TK, in.visible.begin_T, in.visible.end_T,
                            in.rotation_T.cos, in.rotation_T.sin, out.o_THP, out.lse_TH});
    ctx->saved_data["documents"] = in.document_offsets;
    ctx->saved_data["window"] = in.window;
    ctx->saved_data["scale"] = in.scale;
    ctx->saved_data["fused"] = fused;
    return {out.o_THP, out.lse_TH};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const AttentionInputs in{.q_THP = saved[0],
                             .kv_TP = saved[1],
                             .sink_H = saved[2],
                             .entries_CP = saved[3],
                             .selected_TK = saved[4],
                             .visible = {saved[5], saved[6]},
                             .document_offsets = ctx->saved_data["documents"].toIntVector(),
                             .window = ctx->saved_data["window"].toInt(),
                             .scale = ctx->saved_data["scale"].toDouble(),
                             .rotation_T = {saved[7], saved[8]}};
    const AttentionOutputs out{.o_THP = saved[9], .lse_TH = saved[10]};
    const WantedGradients wanted{.q = ctx->needs_input_grad(0),
                                 .kv = ctx->needs_input_grad(1),
                                 .sink = ctx->needs_input_grad(2),
                                 .entries = in.entries_CP.defined() && ctx->needs_input_grad(3)};
    const AttentionGradients grad = ctx->saved_data["fused"].toBool()
                                        ? fused_attention_backward(in, out, grads[0], wanted)
                                        : reference_attention_backward(in, out, grads[0], wanted);
    return {grad.q_THP, grad.kv_TP, grad.sink_H, grad.entries_CP, Tensor(), Tensor(), Tensor()};
  }
};

void check_rotation(const AttentionInputs& in) {
  const Tensor &cos = in.rotation_T.cos, &sin = in.rotation_T.sin;
  if (!cos.defined()) return;
  TORCH_CHECK(
      cos.dim() == 2 && cos.size(0) == in.num_tokens() && 2 * cos.size(1) <= in.width() && cos.sizes() == sin.sizes(),
      "[sparse_attention] the rotation must be [", in.num_tokens(), ", width / 2] with width <= ", in.width(),
      ", got cos ", cos.sizes(), " and sin ", sin.sizes());
}

void check_attention(const AttentionInputs& in, const Windows* windows) {
  const Tensor &q = in.q_THP, &kv = in.kv_TP;
  const int64_t num_tokens = in.document_offsets.empty() ? 0 : in.document_offsets.back();
  TORCH_CHECK(q.dim() == 3 && q.size(0) == num_tokens && q.size(1) >= 1 && q.size(2) >= 1,
              "[sparse_attention] q must be [T, H, P] with T = ", num_tokens, ", got ", q.sizes());
  TORCH_CHECK(kv.dim() == 2 && kv.size(0) == num_tokens && kv.size(1) == q.size(2), "[sparse_attention] kv must be [",
              num_tokens, ", ", q.size(2), "], got ", kv.sizes());
  TORCH_CHECK(in.sink_H.dim() == 1 && in.sink_H.size(0) == q.size(1), "[sparse_attention] sink must be [", q.size(1),
              "], got ", in.sink_H.sizes());
  TORCH_CHECK(kv.scalar_type() == q.scalar_type(), "[sparse_attention] q and kv must have one type, got ",
              q.scalar_type(), " and ", kv.scalar_type());
  TORCH_CHECK(q.device().is_cpu(), "[sparse_attention] tensors must be on the CPU, got ", q.device());
  TORCH_CHECK(in.window >= 1, "[sparse_attention] the window must be positive, got ", in.window);
  if (!in.entries_CP.defined()) {
    TORCH_CHECK(!in.selected_TK.defined(), "[sparse_attention] entries are selected but none are given");
    return;
  }
  TORCH_CHECK(windows != nullptr, "[sparse_attention] entries need their windows");
  const Tensor& entries = in.entries_CP;
  TORCH_CHECK(entries.dim() == 2 && entries.size(0) == windows->num_entries() && entries.size(1) == q.size(2),
              "[sparse_attention] entries must be [", windows->num_entries(), ", ", q.size(2), "], got ",
              entries.sizes());
  TORCH_CHECK(entries.scalar_type() == q.scalar_type(), "[sparse_attention] q and entries must have one type, got ",
              q.scalar_type(), " and ", entries.scalar_type());
  TORCH_CHECK(in.visible.begin_T.size(0) == num_tokens, "[sparse_attention] windows are made for ", num_tokens,
              " tokens, got ", in.visible.begin_T.size(0));
  const Tensor& selected = in.selected_TK;
  TORCH_CHECK(!selected.defined() ||
                  (selected.dim() == 2 && selected.size(0) == num_tokens && selected.scalar_type() == at::kLong),
              "[sparse_attention] selected must be int64 [", num_tokens, ", K], got ", selected.scalar_type(), " ",
              selected.sizes());
  if (selected.defined()) check_selection(selected, in.visible);
}

}  // namespace

SparseAttentionResult sparse_attention(const at::Tensor& q_THP, const at::Tensor& kv_TP, const at::Tensor& entries_CP,
                                       const at::Tensor& selected_TK, const at::Tensor& sink_H,
                                       const Documents& documents, const Windows* windows, int64_t window, double scale,
                                       const RopeTable& rotation_T, Kept* kept) {
  AttentionInputs in{.q_THP = q_THP,
                     .kv_TP = kv_TP,
                     .sink_H = sink_H,
                     .entries_CP = entries_CP,
                     .selected_TK = selected_TK,
                     .visible = {},
                     .document_offsets = documents.offsets,
                     .window = window,
                     .scale = scale,
                     .rotation_T = rotation_T};
  if (entries_CP.defined() && windows != nullptr) in.visible = {windows->visible_begin_T, windows->visible_end_T};
  check_attention(in, windows);
  check_rotation(in);
  const bool fused = can_fuse_attention(in) && !ReferenceAttention::is_wanted();
  if (!fused) in.rotation_T = {};
  const std::optional<Tensor> entries = entries_CP.defined() ? std::optional(entries_CP) : std::nullopt;
  const variable_list out = SparseAttention::apply(q_THP, kv_TP, sink_H, entries, in, fused, kept);
  const bool turned = fused || !rotation_T.cos.defined();
  return {.o_THP = turned ? out[0] : rope(out[0], rotation_T, /*inverse=*/true), .lse_TH = out[1]};
}

}  // namespace asterism::ops
