#include "asterism/ops/indexer.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "asterism/ops/cpu/indexer_kernel.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/query_blocks.h"
#include "asterism/ops/sparse_attention_reference.h"

namespace asterism::ops {

namespace {

using at::Tensor;

struct IndexInputs {
  Tensor q_THI, key_CI, weight_TH;
  VisibleEntries visible;

  at::ScalarType type() const { return sum_type(q_THI.scalar_type()); }
  std::vector<QueryBlock> blocks() const {
    return cut_into_blocks(equal_begin_runs(visible), visible, {.num_heads = q_THI.size(1)});
  }
};

void check_inputs(const IndexInputs& in, int64_t num_entries) {
  const Tensor &q = in.q_THI, &key = in.key_CI, &weight = in.weight_TH;
  const int64_t num_tokens = in.visible.begin_T.size(0);
  TORCH_CHECK(q.dim() == 3 && q.size(0) == num_tokens && q.size(1) >= 1,
              "[index_topk] q must be [T, Hi, Di] with T = ", num_tokens, ", got ", q.sizes());
  TORCH_CHECK(key.dim() == 2 && key.size(0) == num_entries && key.size(1) == q.size(2), "[index_topk] key must be [",
              num_entries, ", ", q.size(2), "], got ", key.sizes());
  TORCH_CHECK(weight.dim() == 2 && weight.size(0) == num_tokens && weight.size(1) == q.size(1),
              "[index_topk] weight must be [", num_tokens, ", ", q.size(1), "], got ", weight.sizes());
  TORCH_CHECK(q.device().is_cpu(), "[index_topk] tensors must be on the CPU, got ", q.device());
}

// [queries, visible entries of the block]; columns that a query does not see hold its score all the same.
Tensor block_scores(const IndexInputs& in, const QueryBlock& block) {
  const int64_t num_queries = block.num_queries(), num_heads = in.q_THI.size(1);
  const Tensor q_MI = query_rows(in.q_THI, block, in.type());
  const Tensor key_NI = in.key_CI.slice(0, block.entry_first, block.entry_last).to(in.type());
  Tensor product_MN = at::empty({q_MI.size(0), key_NI.size(0)}, q_MI.options());
  matmul_nt_out(product_MN, q_MI, key_NI);
  const Tensor relu_BHN = product_MN.relu_().view({num_queries, num_heads, key_NI.size(0)});
  const Tensor weight_B1H = in.weight_TH.slice(0, block.first, block.last).to(in.type()).unsqueeze(1);
  return matmul_batched(weight_B1H, relu_BHN).squeeze(1);
}

[[noreturn]] void refuse_nan(int64_t query) {
  TORCH_CHECK(false, "[index_topk] the index scores of query ", query, " are not numbers (NaN)");
}

// The kernels sum in fp32; fp64 and CPUs without them use the plain form below, which is also the kernels' oracle.
bool can_use_kernels(const IndexInputs& in) {
  return in.type() == at::kFloat && cpu::has_indexer_kernels() && !ReferenceAttention::is_wanted();
}

// The inputs as the kernels take them, with everything that they point at.
struct IndexKernelInputs {
  explicit IndexKernelInputs(const IndexInputs& in)
      : q_THI(in.q_THI.to(at::kFloat).contiguous()),
        weight_TH(in.weight_TH.to(at::kFloat).contiguous()),
        panels(at::empty({cpu::index_panels_size(in.key_CI.size(0), in.key_CI.size(1))}, at::kFloat)),
        args{.num_heads = q_THI.size(1),
             .width = q_THI.size(2),
             .num_keys = in.key_CI.size(0),
             .q = q_THI.const_data_ptr<float>(),
             .weight = weight_TH.const_data_ptr<float>(),
             .panels = panels.data_ptr<float>(),
             .visible_begin = in.visible.begin_T.const_data_ptr<int64_t>(),
             .visible_end = in.visible.end_T.const_data_ptr<int64_t>()} {
    const Tensor key_CI = in.key_CI.to(at::kFloat).contiguous();
    at::parallel_for(0, cpu::num_index_panels(args.num_keys), 1, [&](int64_t begin, int64_t end) {
      cpu::pack_index_keys(args, key_CI.const_data_ptr<float>(), begin, end);
    });
  }

  Tensor q_THI, weight_TH, panels;
  cpu::IndexArgs args;
};

// Ascending indices of the k largest of score[0 .. n - 1], n > k; the smaller index wins a tie.
template <typename T>
void select_largest(const T* score, int64_t n, int64_t k, std::vector<T>& work, int64_t* out) {
  if (k == 0) return;
  work.assign(score, score + n);
  std::nth_element(work.begin(), work.begin() + (k - 1), work.end(), std::greater<T>());
  const T threshold = work[k - 1];
  int64_t ties = k - std::count_if(score, score + n, [&](T s) { return s > threshold; });
  for (int64_t i = 0; i < n; ++i) {
    if (score[i] > threshold || (score[i] == threshold && ties-- > 0)) *out++ = i;
  }
}

template <typename T>
void select_rows(const Tensor& score_BN, const QueryBlock& block, const VisibleEntries& visible,
                 const Tensor& selected_TK) {
  const int64_t k = selected_TK.size(1);
  std::vector<T> work;
  for (int64_t t = block.first; t < block.last; ++t) {
    const int64_t begin = visible.begin_T.const_data_ptr<int64_t>()[t];
    const int64_t count = visible.end_T.const_data_ptr<int64_t>()[t] - begin;
    auto* out = selected_TK.data_ptr<int64_t>() + t * k;
    if (count <= k) {
      std::iota(out, out + count, begin);
      continue;
    }
    const T* score = score_BN.const_data_ptr<T>() + (t - block.first) * score_BN.size(1);
    if (std::any_of(score, score + count, [](T s) { return std::isnan(s); })) refuse_nan(t);
    select_largest(score, count, k, work, out);
    for (int64_t i = 0; i < k; ++i) out[i] += begin;
  }
}

}  // namespace

at::Tensor index_topk(const at::Tensor& q_THI, const at::Tensor& key_CI, const at::Tensor& weight_TH,
                      const Windows& windows, int64_t k) {
  const IndexInputs in{
      q_THI.detach(), key_CI.detach(), weight_TH.detach(), {windows.visible_begin_T, windows.visible_end_T}};
  check_inputs(in, windows.num_entries());
  TORCH_CHECK(k >= 0, "[index_topk] k must not be negative, got ", k);
  const Tensor selected_TK = at::full({q_THI.size(0), std::min(k, windows.num_entries())}, -1, at::kLong);
  if (can_use_kernels(in)) {
    const IndexKernelInputs kernel(in);
    for_each_block(in.blocks(), [&](const QueryBlock& block) {
      const int64_t bad_query =
          cpu::index_topk(kernel.args, block, selected_TK.size(1), selected_TK.data_ptr<int64_t>());
      if (bad_query >= 0) refuse_nan(bad_query);
    });
    return selected_TK;
  }
  for_each_block(in.blocks(), [&](const QueryBlock& block) {
    // The last query of a block sees the most.
    const bool choice = block.num_visible_entries() > selected_TK.size(1);
    const Tensor score_BN = choice ? block_scores(in, block).contiguous() : at::empty({0, 0}, in.type());
    AT_DISPATCH_FLOATING_TYPES(in.type(), "index_topk",
                               [&] { select_rows<scalar_t>(score_BN, block, in.visible, selected_TK); });
  });
  return selected_TK;
}

at::Tensor index_scores(const at::Tensor& q_THI, const at::Tensor& key_CI, const at::Tensor& weight_TH,
                        const Windows& windows) {
  const IndexInputs in{
      q_THI.detach(), key_CI.detach(), weight_TH.detach(), {windows.visible_begin_T, windows.visible_end_T}};
  check_inputs(in, windows.num_entries());
  const double hidden = -std::numeric_limits<double>::infinity();
  const Tensor score_TC = at::full({q_THI.size(0), windows.num_entries()}, hidden, q_THI.options().dtype(in.type()));
  if (can_use_kernels(in)) {
    const IndexKernelInputs kernel(in);
    for_each_block(in.blocks(), [&](const QueryBlock& block) {
      auto* row = score_TC.data_ptr<float>() + block.first * score_TC.size(1) + block.entry_first;
      cpu::index_scores(kernel.args, block, row, score_TC.size(1));
    });
    return score_TC;
  }
  for_each_block(in.blocks(), [&](const QueryBlock& block) {
    if (block.num_visible_entries() == 0) return;
    const Tensor mask_BN = at::empty({block.num_queries(), block.num_visible_entries()}, score_TC.options());
    fill_entry_mask(block, in.visible, Tensor(), mask_BN);
    score_TC.slice(0, block.first, block.last)
        .slice(1, block.entry_first, block.entry_last)
        .copy_(block_scores(in, block).add_(mask_BN));
  });
  return score_TC;
}

}  // namespace asterism::ops
