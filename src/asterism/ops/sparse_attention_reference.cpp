#include "asterism/ops/sparse_attention_reference.h"

#include <array>
#include <atomic>
#include <optional>
#include <span>

#include "asterism/ops/key_rows.h"
#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

using at::Tensor;

std::atomic<int> reference_wishes{0};

at::ScalarType sums_of(const AttentionInputs& in) {
  return sum_type(in.q_THP.scalar_type());
}

std::vector<QueryBlock> attention_blocks(const AttentionInputs& in) {
  return cut_into_blocks(
      in.document_offsets, in.visible,
      {.num_heads = in.num_heads(), .window = in.window, .list_length = in.list_length(), .width = in.width()});
}

// Everything a block of queries attends to: raw keys in the first columns of a score matrix, entries in the others.
class BlockKeys {
 public:
  BlockKeys(const AttentionInputs& in, const QueryBlock& block)
      : raw_(in.kv_TP, block.key_first, block.last, sums_of(in)) {
    if (in.entries_CP.defined() && block.num_visible_entries() > 0) {
      entries_.emplace(KeyRows::entries_of(block, in.entries_CP, in.selected_TK, sums_of(in)));
    }
    mask_BN_ = at::empty({block.num_queries(), num_keys()}, in.q_THP.options().dtype(sums_of(in)));
    fill_window_mask(block, in.window, mask_BN_);
    if (entries_) fill_entry_mask(block, in.visible, in.selected_TK, entry_columns(mask_BN_));
  }

  Tensor scores(const Tensor& x_MP) const {
    Tensor score_MN = at::empty({x_MP.size(0), num_keys()}, x_MP.options());
    raw_.scores(x_MP, raw_columns(score_MN));
    if (entries_) entries_->scores(x_MP, entry_columns(score_MN));
    return score_MN;
  }

  Tensor weighted_sum(const Tensor& weight_MN) const {
    Tensor sum_MP = at::zeros({weight_MN.size(0), width()}, weight_MN.options());
    raw_.add_weighted_sum(raw_columns(weight_MN), sum_MP);
    if (entries_) entries_->add_weighted_sum(entry_columns(weight_MN), sum_MP);
    return sum_MP;
  }

  void add_gradient(const std::array<WeightedRows, 2>& terms, const RowGradient& raw, const RowGradient& entry) const {
    if (raw.rows_NP.defined()) {
      raw_.add_gradient(std::array{WeightedRows{raw_columns(terms[0].weight_MN), terms[0].x_MP},
                                   WeightedRows{raw_columns(terms[1].weight_MN), terms[1].x_MP}},
                        raw);
    }
    if (entries_ && entry.rows_NP.defined()) {
      entries_->add_gradient(std::array{WeightedRows{entry_columns(terms[0].weight_MN), terms[0].x_MP},
                                        WeightedRows{entry_columns(terms[1].weight_MN), terms[1].x_MP}},
                             entry);
    }
  }

  // -inf in the scores of keys that a query does not see, in place; returns the scores as [queries, H, N].
  Tensor masked(const Tensor& score_MN) const {
    Tensor score_BHN = score_MN.view({mask_BN_.size(0), -1, num_keys()});
    return score_BHN.add_(mask_BN_.unsqueeze(1));
  }

 private:
  int64_t num_keys() const { return raw_.num_keys() + (entries_ ? entries_->num_keys() : 0); }
  int64_t width() const { return raw_.width(); }
  Tensor raw_columns(const Tensor& x_MN) const { return x_MN.slice(1, 0, raw_.num_keys()); }
  Tensor entry_columns(const Tensor& x_MN) const { return x_MN.slice(1, raw_.num_keys(), num_keys()); }

  KeyRows raw_;
  std::optional<KeyRows> entries_;
  Tensor mask_BN_;
};

void attend(const AttentionInputs& in, const QueryBlock& block, const Tensor& sink_H, const AttentionOutputs& out) {
  const BlockKeys keys(in, block);
  const Tensor p_MN = keys.scores(query_rows(in.q_THP, block, sums_of(in)) * in.scale);
  const Tensor p_BHN = keys.masked(p_MN);
  const Tensor largest_BH = at::maximum(p_BHN.amax(-1), sink_H);
  p_BHN.sub_(largest_BH.unsqueeze(-1)).exp_();
  const Tensor denominator_BH = p_BHN.sum(-1).add_((sink_H - largest_BH).exp_());
  // Divide after the product: P is several times narrower than the row of scores.
  const Tensor o_MP = keys.weighted_sum(p_MN).div_(denominator_BH.view({-1, 1}));
  out.o_THP.slice(0, block.first, block.last).copy_(o_MP.view({block.num_queries(), in.num_heads(), in.width()}));
  out.lse_TH.slice(0, block.first, block.last).copy_(denominator_BH.log().add_(largest_BH));
}

class AttentionBackward {
 public:
  AttentionBackward(const AttentionInputs& in, const AttentionOutputs& out, const Tensor& grad_o_THP,
                    const WantedGradients& wanted)
      : in_(in), out_(out), grad_o_THP_(grad_o_THP), blocks_(attention_blocks(in)), sink_H_(in.sink_H.to(sums_of(in))) {
    if (wanted.q) grad_.q_THP = at::empty(in.q_THP.sizes(), in.q_THP.options());
    want_raw_ = wanted.kv;
    want_entries_ = wanted.entries && in.entries_CP.defined();
    want_sink_ = wanted.sink;
    if (want_sink_) sink_term_TH_ = at::empty_like(out.lse_TH);
  }

  AttentionGradients run() {
    const int64_t num_entries = in_.entries_CP.defined() ? in_.entries_CP.size(0) : 0, width = in_.width();
    // Raw keys of neighbouring parts overlap by one window at most: entries decide how many parts memory allows.
    const std::vector<int64_t> parts = partition_blocks(blocks_, num_gradient_parts(num_entries, width));
    const size_t num_parts = parts.size() - 1;
    std::vector<RowGradient> raw(num_parts), entries(num_parts);
    run_tasks(static_cast<int64_t>(num_parts), [&](int64_t i) {
      const std::span<const QueryBlock> blocks(blocks_.data() + parts[i], blocks_.data() + parts[i + 1]);
      open_buffers(blocks, raw[i], entries[i]);
      for (const QueryBlock& block : blocks) differentiate(block, raw[i], entries[i]);
    });
    if (want_raw_) {
      grad_.kv_TP = sum_in_order(raw, in_.kv_TP.size(0), width, sums_of(in_)).to(in_.kv_TP.scalar_type());
    }
    if (want_entries_) {
      grad_.entries_CP = sum_in_order(entries, num_entries, width, sums_of(in_)).to(in_.entries_CP.scalar_type());
    }
    if (want_sink_) grad_.sink_H = sink_gradient();
    return grad_;
  }

 private:
  void open_buffers(std::span<const QueryBlock> blocks, RowGradient& raw, RowGradient& entries) const {
    const auto options = in_.q_THP.options().dtype(sums_of(in_));
    const auto open = [&](int64_t first, int64_t last) {
      return RowGradient{.first = first, .rows_NP = at::zeros({last - first, in_.width()}, options)};
    };
    if (want_raw_) raw = open(blocks.front().key_first, blocks.back().last);
    if (want_entries_) entries = open(blocks.front().entry_first, blocks.back().entry_last);
  }

  void differentiate(const QueryBlock& block, const RowGradient& raw, const RowGradient& entries) {
    const int64_t num_queries = block.num_queries();
    const Tensor lse_BH = out_.lse_TH.slice(0, block.first, block.last);
    const Tensor grad_o_MP = query_rows(grad_o_THP_, block, sums_of(in_));
    // <o, grad_o> is sum_j p_j <grad_o, k_j>: the part of the softmax gradient that all keys share.
    const Tensor delta_BH =
        (query_rows(out_.o_THP, block, sums_of(in_)) * grad_o_MP).sum(-1).view({num_queries, in_.num_heads()});
    if (want_sink_) {
      sink_term_TH_.slice(0, block.first, block.last).copy_((sink_H_ - lse_BH).exp_().mul_(delta_BH));
    }
    if (!grad_.q_THP.defined() && !want_raw_ && !want_entries_) return;
    const BlockKeys keys(in_, block);
    const Tensor q_MP = query_rows(in_.q_THP, block, sums_of(in_)) * in_.scale;
    const Tensor p_MN = keys.scores(q_MP);
    const Tensor p_BHN = keys.masked(p_MN).sub_(lse_BH.unsqueeze(-1)).exp_();
    const Tensor grad_z_MN = keys.scores(grad_o_MP);
    grad_z_MN.view(p_BHN.sizes()).sub_(delta_BH.unsqueeze(-1)).mul_(p_BHN);
    if (grad_.q_THP.defined()) {
      const Tensor grad_q_MP = keys.weighted_sum(grad_z_MN).mul_(in_.scale);
      grad_.q_THP.slice(0, block.first, block.last).copy_(grad_q_MP.view({num_queries, in_.num_heads(), in_.width()}));
    }
    if (want_raw_ || want_entries_) keys.add_gradient({{{p_MN, grad_o_MP}, {grad_z_MN, q_MP}}}, raw, entries);
  }

  // In token order and fp64: at::sum would split the tokens by thread.
  Tensor sink_gradient() const {
    const Tensor term_TH = sink_term_TH_.to(at::kDouble);
    Tensor grad_H = at::zeros({in_.num_heads()}, at::kDouble);
    const auto* term = term_TH.const_data_ptr<double>();
    auto* grad = grad_H.data_ptr<double>();
    for (int64_t i = 0; i < term_TH.numel(); ++i) grad[i % in_.num_heads()] -= term[i];
    return grad_H.to(in_.sink_H.scalar_type());
  }

  const AttentionInputs& in_;
  const AttentionOutputs& out_;
  const Tensor& grad_o_THP_;
  std::vector<QueryBlock> blocks_;
  Tensor sink_H_;
  AttentionGradients grad_;
  Tensor sink_term_TH_;
  bool want_raw_ = false, want_entries_ = false, want_sink_ = false;
};

}  // namespace

AttentionOutputs reference_attention(const AttentionInputs& in) {
  const AttentionOutputs out{
      .o_THP = at::empty(in.q_THP.sizes(), in.q_THP.options()),
      .lse_TH = at::empty({in.q_THP.size(0), in.num_heads()}, in.q_THP.options().dtype(sums_of(in)))};
  const Tensor sink_H = in.sink_H.to(sums_of(in));
  for_each_block(attention_blocks(in), [&](const QueryBlock& block) { attend(in, block, sink_H, out); });
  return out;
}

AttentionGradients reference_attention_backward(const AttentionInputs& in, const AttentionOutputs& out,
                                                const Tensor& grad_o_THP, const WantedGradients& wanted) {
  return AttentionBackward(in, out, grad_o_THP, wanted).run();
}

ReferenceAttention::ReferenceAttention() {
  ++reference_wishes;
}

ReferenceAttention::~ReferenceAttention() {
  --reference_wishes;
}

bool ReferenceAttention::is_wanted() {
  return reference_wishes > 0;
}

}  // namespace asterism::ops
