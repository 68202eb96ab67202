#include "tests/support/attention_problem.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "tests/support/gradients.h"

namespace asterism::testing {

namespace {

at::Tensor picked_entries(const ops::Windows& windows, int64_t num_tokens, int64_t k) {
  const at::Tensor lists = at::full({num_tokens, k}, -1, at::kLong);
  for (int64_t t = 0; t < num_tokens; ++t) {
    int64_t used = 0;
    const auto begin = windows.visible_begin_T[t].item<int64_t>(), end = windows.visible_end_T[t].item<int64_t>();
    for (int64_t c = begin; c < end && used < k && t % 5 != 4; ++c) {
      if ((c * 7 + t * 3) % 4 < 2) lists.data_ptr<int64_t>()[t * k + used++] = c;
    }
  }
  return lists;
}

}  // namespace

ops::SparseAttentionResult AttentionProblem::run() const {
  return ops::sparse_attention(q, kv, entries, selected, sink, documents, entries.defined() ? &windows : nullptr,
                               window, scale, rotation);
}

AttentionProblem AttentionProblem::as(at::ScalarType type) const {
  AttentionProblem other = *this;
  other.q = q.to(type), other.kv = kv.to(type);
  other.sink = sink.to(type == at::kDouble ? at::kDouble : at::kFloat);
  if (entries.defined()) other.entries = entries.to(type);
  return other;
}

AttentionProblem make_attention(const AttentionCase& c, int64_t heads, int64_t width) {
  AttentionProblem s;
  s.documents = ops::make_documents(c.lengths);
  s.windows = ops::make_windows(s.documents, c.ratio);
  const int64_t num_tokens = s.documents.num_tokens();
  s.q = random_tensor({num_tokens, heads, width}, "q", 2.0);
  s.kv = random_tensor({num_tokens, width}, "kv");
  s.sink = random_tensor({heads}, "sink");
  if (c.kind != AttentionKind::kWindowOnly) s.entries = random_tensor({s.windows.num_entries(), width}, "entries");
  if (c.kind == AttentionKind::kSelected) s.selected = picked_entries(s.windows, num_tokens, c.k);
  s.window = c.window;
  s.scale = 1.0 / std::sqrt(static_cast<double>(width));
  return s;
}

ops::SparseAttentionResult literal_attention(const AttentionCase& c, const AttentionProblem& problem) {
  const AttentionProblem s = problem.as(at::kDouble);
  const int64_t heads = s.q.size(1), width = s.q.size(2);
  const at::Tensor o = at::zeros(s.q.sizes(), at::kDouble), lse = at::empty({s.q.size(0), heads}, at::kDouble);
  int64_t document = 0, first_entry = 0;
  for (const int64_t length : c.lengths) {
    for (int64_t t = 0; t < length; ++t) {
      std::vector<at::Tensor> keys;
      for (int64_t j = 0; j <= t; ++j) {
        if (j > t - c.window) keys.push_back(s.kv[document + j]);
      }
      for (int64_t w = 0; w < (t + 1) / c.ratio && c.kind != AttentionKind::kWindowOnly; ++w) {
        const int64_t entry = first_entry + w;
        if (c.kind == AttentionKind::kAllVisible || s.selected[document + t].eq(entry).any().item<bool>()) {
          keys.push_back(s.entries[entry]);
        }
      }
      const at::Tensor key = at::stack(keys);
      for (int64_t h = 0; h < heads; ++h) {
        const at::Tensor z = at::mv(key, s.q[document + t][h]) * s.scale;
        double largest = std::max(z.max().item<double>(), s.sink[h].item<double>());
        const at::Tensor e = (z - largest).exp();
        const double total = e.sum().item<double>() + std::exp(s.sink[h].item<double>() - largest);
        o[document + t][h].copy_(at::mv(key.t(), e) / total);
        lse[document + t][h] = largest + std::log(total);
      }
    }
    document += length;
    first_entry += length / c.ratio;
  }
  EXPECT_EQ(o.size(2), width);
  return {o, lse};
}

std::vector<at::Tensor> attention_gradients(AttentionProblem s) {
  std::vector<at::Tensor> inputs;
  for (at::Tensor* x : {&s.q, &s.kv, &s.sink, &s.entries}) {
    if (!x->defined()) continue;
    *x = x->detach().clone().requires_grad_(true);
    inputs.push_back(*x);
  }
  const at::Tensor o = s.run().o_THP;
  const at::Tensor cotangent = random_tensor(o.sizes(), "cotangent").to(o.scalar_type());
  return torch::autograd::grad({o}, inputs, {cotangent});
}

}  // namespace asterism::testing
