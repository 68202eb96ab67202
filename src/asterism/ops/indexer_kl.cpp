#include "asterism/ops/indexer_kl.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <limits>
#include <memory>

#include "asterism/ops/key_rows.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/query_blocks.h"
#include "asterism/ops/sparse_attention_fused.h"
#include "asterism/ops/sparse_attention_reference.h"

namespace asterism::ops {

namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct KlInputs {
  IndexerTeacher teacher;
  Tensor q_THI, key_CI, weight_TH;  // the student
  Tensor selected_TK;               // undefined: all visible entries
  VisibleEntries visible;
  std::shared_ptr<const AttentionMass> mass;  // of the teacher's kernels; null where it has none

  at::ScalarType type() const { return sum_type(q_THI.scalar_type()); }
  // Queries that see no entry have an empty set and no part in the loss.
  std::vector<QueryBlock> blocks() const {
    std::vector<QueryBlock> all = cut_into_blocks(equal_begin_runs(visible), visible,
                                                  {.num_heads = std::max(q_THI.size(1), teacher.q_THP.size(1)),
                                                   .list_length = selected_TK.defined() ? selected_TK.size(1) : -1,
                                                   .width = std::max(q_THI.size(2), teacher.q_THP.size(2))});
    std::erase_if(all, [](const QueryBlock& block) { return block.num_visible_entries() == 0; });
    return all;
  }
};

// Per query, in the type of sums. Gradients are undefined where only the loss is wanted.
struct KlOutputs {
  Tensor loss_T, grad_q_THI, grad_weight_TH;
};

// [queries, H, N] products of a block's queries with the rows.
Tensor products(const KeyRows& rows, const Tensor& x_MP, int64_t num_queries) {
  Tensor score_MN = at::empty({x_MP.size(0), rows.num_keys()}, x_MP.options());
  rows.scores(x_MP, score_MN);
  return score_MN.view({num_queries, -1, rows.num_keys()});
}

// The largest value over `dims`, kept as dimensions; finite also where everything is masked, so that subtracting it
// leaves -inf and not NaN.
Tensor finite_max(const Tensor& x, at::IntArrayRef dims) {
  const double lowest = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::lowest()
                                                       : double{std::numeric_limits<float>::lowest()};
  return x.amax(dims, /*keepdim=*/true).clamp_min_(lowest);
}

// Rows of `x` (not negative) divided by their sum; empty sets stay zero. A row with a finite maximum that was
// subtracted before exp has a sum of at least 1, so the bound touches empty rows only.
Tensor normalised(const Tensor& x_BN) {
  return x_BN / x_BN.sum(-1, /*keepdim=*/true).clamp_min_(0.5);
}

// p [queries, N]. The common factor of all heads and entries of a query cancels: its largest exponent is taken out
// first, so that a query that hardly looks at its entries does not underflow.
Tensor teacher_distribution(const KlInputs& in, const QueryBlock& block, const Tensor& mask_BN) {
  if (in.mass != nullptr) {
    Tensor log_p_BN = in.mass->log_mass(block).add_(mask_BN);
    return normalised(log_p_BN.sub_(finite_max(log_p_BN, {1})).exp_());
  }
  const IndexerTeacher& teacher = in.teacher;
  const KeyRows rows = KeyRows::entries_of(block, teacher.entries_CP, in.selected_TK, in.type());
  Tensor log_p_BHN = products(rows, query_rows(teacher.q_THP, block, in.type()) * teacher.scale, block.num_queries());
  log_p_BHN.sub_(teacher.lse_TH.slice(0, block.first, block.last).to(in.type()).unsqueeze(-1));
  log_p_BHN.add_(mask_BN.unsqueeze(1));
  return normalised(log_p_BHN.sub_(finite_max(log_p_BHN, {1, 2})).exp_().sum(1));
}

void distil(const KlInputs& in, const QueryBlock& block, const KlOutputs& out, const RowGradient& grad_key) {
  const int64_t num_queries = block.num_queries();
  const KeyRows keys = KeyRows::entries_of(block, in.key_CI, in.selected_TK, in.type());
  const Tensor mask_BN = at::empty({num_queries, keys.num_keys()}, out.loss_T.options());
  fill_entry_mask(block, in.visible, in.selected_TK, mask_BN);
  const Tensor p_BN = teacher_distribution(in, block, mask_BN);

  const Tensor q_MI = query_rows(in.q_THI, block, in.type());
  const Tensor relu_BHN = products(keys, q_MI, num_queries).relu_();
  const Tensor weight_BH = in.weight_TH.slice(0, block.first, block.last).to(in.type());
  Tensor score_BN = matmul_batched(weight_BH.unsqueeze(1), relu_BHN).squeeze(1).add_(mask_BN);
  score_BN.sub_(finite_max(score_BN, {1}));
  const Tensor exp_BN = score_BN.exp();
  const Tensor log_q_BN = score_BN.sub_(exp_BN.sum(-1, /*keepdim=*/true).log_());
  const Tensor term_BN = at::where(p_BN > 0, p_BN * (p_BN.log() - log_q_BN), 0.0);
  out.loss_T.slice(0, block.first, block.last).copy_(term_BN.sum(-1));
  if (!out.grad_q_THI.defined()) return;

  const Tensor grad_score_BN = normalised(exp_BN).sub_(p_BN);
  out.grad_weight_TH.slice(0, block.first, block.last)
      .copy_(matmul_batched(relu_BHN, grad_score_BN.unsqueeze(2)).squeeze(2));
  const Tensor grad_relu_BHN = weight_BH.unsqueeze(2) * grad_score_BN.unsqueeze(1);
  const Tensor grad_product_MN = at::threshold_backward(grad_relu_BHN, relu_BHN, 0).view({-1, keys.num_keys()});
  Tensor grad_q_MI = at::zeros_like(q_MI);
  keys.add_weighted_sum(grad_product_MN, grad_q_MI);
  out.grad_q_THI.slice(0, block.first, block.last).copy_(grad_q_MI.view({num_queries, -1, q_MI.size(1)}));
  keys.add_gradient(std::array{WeightedRows{grad_product_MN, q_MI}}, grad_key);
}

// In token order and fp64: at::sum would split the tokens by thread.
Tensor sum_of_tokens(const Tensor& x_T) {
  const Tensor wide_T = x_T.to(at::kDouble);
  double total = 0;
  for (int64_t t = 0; t < wide_T.size(0); ++t) total += wide_T.const_data_ptr<double>()[t];
  return at::scalar_tensor(total, x_T.options());
}

// Own node: gradients are made beside the loss and only scaled in the backward, so that no scores are kept.
struct IndexerKl : torch::autograd::Function<IndexerKl> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q_THI, const Tensor& key_CI, const Tensor& weight_TH,
                        const KlInputs& in, bool want_gradients) {
    const auto options = q_THI.options().dtype(in.type());
    KlOutputs out{.loss_T = at::zeros({q_THI.size(0)}, options), .grad_q_THI = {}, .grad_weight_TH = {}};
    if (want_gradients) {
      out.grad_q_THI = at::zeros(q_THI.sizes(), options);
      out.grad_weight_TH = at::zeros(weight_TH.sizes(), options);
    }
    const std::vector<QueryBlock> blocks = in.blocks();
    const int64_t num_entries = key_CI.size(0), width = key_CI.size(1);
    const std::vector<int64_t> parts = partition_blocks(blocks, num_gradient_parts(num_entries, width));
    std::vector<RowGradient> grad_key(parts.size() - 1);
    run_tasks(static_cast<int64_t>(grad_key.size()), [&](int64_t i) {
      const int64_t first = blocks[parts[i]].entry_first, last = blocks[parts[i + 1] - 1].entry_last;
      if (want_gradients) grad_key[i] = {.first = first, .rows_NP = at::zeros({last - first, width}, options)};
      for (int64_t b = parts[i]; b < parts[i + 1]; ++b) distil(in, blocks[b], out, grad_key[i]);
    });
    if (want_gradients) {
      ctx->save_for_backward(
          {out.grad_q_THI, sum_in_order(grad_key, num_entries, width, in.type()), out.grad_weight_TH});
      ctx->saved_data["types"] =
          std::vector<int64_t>{static_cast<int64_t>(q_THI.scalar_type()), static_cast<int64_t>(key_CI.scalar_type()),
                               static_cast<int64_t>(weight_TH.scalar_type())};
    }
    return sum_of_tokens(out.loss_T);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const std::vector<int64_t> types = ctx->saved_data["types"].toIntVector();
    variable_list result(5);
    for (size_t i = 0; i < saved.size(); ++i) {
      if (ctx->needs_input_grad(i)) result[i] = (saved[i] * grads[0]).to(static_cast<at::ScalarType>(types[i]));
    }
    return result;
  }
};

// The teacher's scores by the kernels of attention, where they can and the sums are fp32.
std::shared_ptr<const AttentionMass> teacher_mass(const KlInputs& in) {
  AttentionInputs attention;
  attention.q_THP = in.teacher.q_THP;
  attention.sink_H = at::zeros({in.teacher.q_THP.size(1)}, at::kFloat);
  attention.entries_CP = in.teacher.entries_CP;
  attention.selected_TK = in.selected_TK;
  attention.visible = in.visible;
  attention.scale = in.teacher.scale;
  attention.window = 1;
  const bool one_type = in.teacher.q_THP.scalar_type() == in.teacher.entries_CP.scalar_type();
  if (in.type() != at::kFloat || !one_type || !can_fuse_attention(attention) || ReferenceAttention::is_wanted()) {
    return nullptr;
  }
  return std::make_shared<AttentionMass>(attention, in.teacher.lse_TH);
}

void check_inputs(const KlInputs& in, int64_t num_entries) {
  const int64_t num_tokens = in.visible.begin_T.size(0);
  const auto check_queries = [&](const Tensor& q, const char* name) {
    TORCH_CHECK(q.dim() == 3 && q.size(0) == num_tokens && q.size(1) >= 1, "[indexer_kl] ", name,
                " must be [T, heads, width] with T = ", num_tokens, ", got ", q.sizes());
    TORCH_CHECK(q.device().is_cpu(), "[indexer_kl] ", name, " must be on the CPU, got ", q.device());
  };
  const auto check_shape = [&](const Tensor& x, const char* name, int64_t rows, int64_t columns) {
    TORCH_CHECK(x.dim() == 2 && x.size(0) == rows && x.size(1) == columns, "[indexer_kl] ", name, " must be [", rows,
                ", ", columns, "], got ", x.sizes());
  };
  check_queries(in.teacher.q_THP, "teacher.q");
  check_queries(in.q_THI, "index_q");
  check_shape(in.teacher.entries_CP, "teacher.entries", num_entries, in.teacher.q_THP.size(2));
  check_shape(in.teacher.lse_TH, "teacher.lse", num_tokens, in.teacher.q_THP.size(1));
  check_shape(in.key_CI, "index_key", num_entries, in.q_THI.size(2));
  check_shape(in.weight_TH, "index_weight", num_tokens, in.q_THI.size(1));
  const Tensor& selected = in.selected_TK;
  TORCH_CHECK(!selected.defined() ||
                  (selected.dim() == 2 && selected.size(0) == num_tokens && selected.scalar_type() == at::kLong),
              "[indexer_kl] selected must be int64 [", num_tokens, ", K], got ", selected.scalar_type(), " ",
              selected.sizes());
}

}  // namespace

at::Tensor indexer_kl(const IndexerTeacher& teacher, const at::Tensor& index_q_THI, const at::Tensor& index_key_CI,
                      const at::Tensor& index_weight_TH, const at::Tensor& selected_TK, const Windows& windows) {
  KlInputs in{.teacher = {.q_THP = teacher.q_THP.detach(),
                          .entries_CP = teacher.entries_CP.detach(),
                          .lse_TH = teacher.lse_TH.detach(),
                          .scale = teacher.scale},
              .q_THI = index_q_THI.detach(),
              .key_CI = index_key_CI.detach(),
              .weight_TH = index_weight_TH.detach(),
              .selected_TK = selected_TK,
              .visible = {windows.visible_begin_T, windows.visible_end_T},
              .mass = nullptr};
  check_inputs(in, windows.num_entries());
  if (selected_TK.defined()) check_selection(selected_TK, in.visible);
  in.mass = teacher_mass(in);
  const bool want_gradients =
      at::GradMode::is_enabled() &&
      (index_q_THI.requires_grad() || index_key_CI.requires_grad() || index_weight_TH.requires_grad());
  return IndexerKl::apply(index_q_THI, index_key_CI, index_weight_TH, in, want_gradients);
}

}  // namespace asterism::ops
