#include "asterism/ops/sparse_attention_fused.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <span>

#include "asterism/ops/cpu/attention_kernel.h"
#include "asterism/ops/key_rows.h"

namespace asterism::ops {

namespace {

using at::Tensor;

constexpr int64_t kForwardTasks = 64;             // of blocks, for the threads to share
constexpr int64_t kQueriesPerGradientPart = 128;  // fewer would sum more borders between parts than gradients

bool is_bf16(const AttentionInputs& in) {
  return in.q_THP.scalar_type() == at::kBFloat16;
}

}  // namespace

// Named, because AttentionMass::State, which a header declares, holds what is in it.
namespace fused {

// Rows as the kernels read them. Owns the memory of the table.
struct PackedRows {
  Tensor table_NX;
  cpu::KeyTable table;
};

PackedRows pack_rows(const Tensor& rows_NP) {
  const bool bf16 = rows_NP.scalar_type() == at::kBFloat16;
  const int64_t num_rows = rows_NP.size(0), width = rows_NP.size(1), stride = cpu::packed_stride(width, bf16);
  const Tensor source_NP = rows_NP.stride(1) == 1 ? rows_NP : rows_NP.contiguous();
  const at::ScalarType type = cpu::packs_bf16(bf16) ? at::kBFloat16 : at::kFloat;
  PackedRows packed{.table_NX = at::empty({num_rows + 1, stride}, rows_NP.options().dtype(type)), .table = {}};
  packed.table = {.rows = packed.table_NX.data_ptr(), .num_rows = num_rows, .stride = stride};
  const cpu::PackKeysArgs args{.source = source_NP.const_data_ptr(),
                               .source_stride = source_NP.stride(0),
                               .width = width,
                               .bf16 = bf16,
                               .table = packed.table};
  at::parallel_for(0, num_rows + 1, 64, [&](int64_t begin, int64_t end) { cpu::pack_keys(args, begin, end); });
  return packed;
}

// The inputs as the kernels take them, with everything that they point at.
class KernelInputs {
 public:
  // Without kv only scores of entries can be asked for.
  explicit KernelInputs(const AttentionInputs& in)
      : q_THP_(in.q_THP.contiguous()), sink_H_(in.sink_H.to(at::kFloat).contiguous()) {
    if (in.kv_TP.defined()) raw_ = pack_rows(in.kv_TP);
    args = {.num_heads = in.num_heads(),
            .width = in.width(),
            .window = std::min(in.window, std::max<int64_t>(in.num_tokens(), 1)),
            .scale = static_cast<float>(in.scale),
            .bf16 = is_bf16(in),
            .q = q_THP_.const_data_ptr(),
            .sink = sink_H_.const_data_ptr<float>(),
            .raw = raw_.table,
            .entries = {}};
    if (in.entries_CP.defined()) {
      entries_ = pack_rows(in.entries_CP);
      args.entries = entries_.table;
      args.visible_begin = in.visible.begin_T.const_data_ptr<int64_t>();
      args.visible_end = in.visible.end_T.const_data_ptr<int64_t>();
    }
    if (in.selected_TK.defined()) {
      selected_TK_ = in.selected_TK.contiguous();
      args.selected = selected_TK_.const_data_ptr<int64_t>();
      args.list_length = selected_TK_.size(1);
    }
    if (in.rotation_T.cos.defined()) {
      cos_ = in.rotation_T.cos.to(at::kFloat).contiguous();
      sin_ = in.rotation_T.sin.to(at::kFloat).contiguous();
      args.cos = cos_.const_data_ptr<float>();
      args.sin = sin_.const_data_ptr<float>();
      args.num_pairs = cos_.size(1);
    }
  }
  KernelInputs(const KernelInputs&) = delete;
  KernelInputs& operator=(const KernelInputs&) = delete;

  cpu::AttentionArgs args;

 private:
  Tensor q_THP_, sink_H_, selected_TK_, cos_, sin_;
  PackedRows raw_, entries_;
};

}  // namespace fused

namespace {

using fused::KernelInputs;

std::vector<QueryBlock> fused_blocks(const AttentionInputs& in) {
  return cut_into_blocks(in.document_offsets, in.visible,
                         {.num_heads = in.num_heads(),
                          .window = in.window,
                          .list_length = in.list_length(),
                          .width = in.width(),
                          .max_queries = cpu::attention_queries_per_block(in.num_heads(), in.width())});
}

// Every n-th block, from number `first`: later queries of a document see more, so neighbours would be a lopsided share.
std::vector<QueryBlock> every_nth(const std::vector<QueryBlock>& blocks, int64_t first, int64_t n) {
  std::vector<QueryBlock> chosen;
  for (auto i = static_cast<size_t>(first); i < blocks.size(); i += static_cast<size_t>(n)) chosen.push_back(blocks[i]);
  return chosen;
}

cpu::RowSums row_sums(const RowGradient& gradient) {
  if (!gradient.rows_NP.defined()) return {};
  return {.rows = gradient.rows_NP.data_ptr<float>(), .first = gradient.first};
}

RowGradient open_gradient(bool wanted, int64_t first, int64_t last, int64_t stride) {
  if (!wanted) return {};
  return {.first = first, .rows_NP = at::zeros({last - first, stride}, at::kFloat)};
}

// The parts' sums, in order, as a gradient of `input`.
Tensor gradient_of(const Tensor& input_NP, const std::vector<RowGradient>& parts, int64_t stride) {
  const Tensor total_NX = sum_in_order(parts, input_NP.size(0), stride, at::kFloat);
  return total_NX.slice(1, 0, input_NP.size(1)).to(input_NP.scalar_type()).contiguous();
}

}  // namespace

bool can_fuse_attention(const AttentionInputs& in) {
  const at::ScalarType type = in.q_THP.scalar_type();
  return (type == at::kFloat || type == at::kBFloat16) && cpu::has_attention_kernels();
}

AttentionOutputs fused_attention(const AttentionInputs& in) {
  const KernelInputs inputs(in);
  const AttentionOutputs out{
      .o_THP = at::empty(in.q_THP.sizes(), in.q_THP.options()),
      .lse_TH = at::empty({in.num_tokens(), in.num_heads()}, in.q_THP.options().dtype(at::kFloat))};
  const cpu::AttentionResults results{.o = out.o_THP.data_ptr(), .lse = out.lse_TH.data_ptr<float>()};
  const std::vector<QueryBlock> blocks = fused_blocks(in);
  const int64_t num_groups = std::min<int64_t>(static_cast<int64_t>(blocks.size()), kForwardTasks);
  run_tasks(num_groups,
            [&](int64_t group) { cpu::attention_forward(inputs.args, results, every_nth(blocks, group, num_groups)); });
  return out;
}

AttentionGradients fused_attention_backward(const AttentionInputs& in, const AttentionOutputs& out,
                                            const Tensor& grad_o_THP, const WantedGradients& wanted) {
  const KernelInputs inputs(in);
  const Tensor o_THP = out.o_THP.contiguous(), lse_TH = out.lse_TH.contiguous(), grad_o = grad_o_THP.contiguous();
  AttentionGradients result;
  if (wanted.q) result.q_THP = at::empty(in.q_THP.sizes(), in.q_THP.options());
  const int64_t stride = inputs.args.raw.stride, num_heads = in.num_heads();
  const std::vector<QueryBlock> blocks = fused_blocks(in);
  // Every part has entries of its own, and raw keys that overlap its neighbour's by one window.
  const int64_t most_parts = num_gradient_parts(in.num_entries(), stride);
  const std::vector<int64_t> borders =
      partition_blocks(blocks, std::clamp<int64_t>(in.num_tokens() / kQueriesPerGradientPart, 4, most_parts));
  const auto num_parts = static_cast<int64_t>(borders.size()) - 1;
  std::vector<RowGradient> raw(num_parts), entries(num_parts);
  std::vector<std::vector<double>> sink(num_parts, std::vector<double>(num_heads, 0.0));
  run_tasks(num_parts, [&](int64_t i) {
    const std::span<const QueryBlock> own(blocks.data() + borders[i], blocks.data() + borders[i + 1]);
    raw[i] = open_gradient(wanted.kv, own.front().key_first, own.back().last, stride);
    entries[i] = open_gradient(wanted.entries, own.front().entry_first, own.back().entry_last, stride);
    cpu::attention_backward(inputs.args,
                            {.o = o_THP.const_data_ptr(),
                             .lse = lse_TH.const_data_ptr<float>(),
                             .grad_o = grad_o.const_data_ptr(),
                             .grad_q = wanted.q ? result.q_THP.data_ptr() : nullptr,
                             .raw = row_sums(raw[i]),
                             .entries = row_sums(entries[i]),
                             .grad_sink = wanted.sink ? sink[i].data() : nullptr},
                            own);
  });
  if (wanted.kv) result.kv_TP = gradient_of(in.kv_TP, raw, stride);
  if (wanted.entries) result.entries_CP = gradient_of(in.entries_CP, entries, stride);
  if (wanted.sink) {
    const Tensor total_H = at::zeros({num_heads}, at::kDouble);
    for (const std::vector<double>& part : sink) {
      for (int64_t h = 0; h < num_heads; ++h) total_H.data_ptr<double>()[h] += part[h];
    }
    result.sink_H = total_H.to(in.sink_H.scalar_type());
  }
  return result;
}

struct AttentionMass::State {
  fused::KernelInputs inputs;
  Tensor lse_TH;
};

AttentionMass::AttentionMass(const AttentionInputs& in, const Tensor& lse_TH)
    : state_(new State{KernelInputs(in), lse_TH.to(at::kFloat).contiguous()}) {}

AttentionMass::~AttentionMass() = default;

Tensor AttentionMass::log_mass(const QueryBlock& block) const {
  const cpu::AttentionArgs& args = state_->inputs.args;
  const int64_t length = block.lists ? args.list_length : block.num_visible_entries();
  const Tensor mass_BN = at::empty({block.num_queries(), length}, at::kFloat);
  cpu::attention_log_mass(args, state_->lse_TH.const_data_ptr<float>(), block, mass_BN.data_ptr<float>(), length);
  return mass_BN;
}

}  // namespace asterism::ops
