#include "asterism/ops/sparse_attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "asterism/core/memory.h"
#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::expect_gradients_match;
using asterism::testing::Inputs;
using asterism::testing::Outputs;
using asterism::testing::random_tensor;
using asterism::testing::relative_difference;
using asterism::testing::relative_l2;

enum class Kind { kWindowOnly, kAllVisible, kSelected };

struct Case {
  std::vector<int64_t> lengths;
  int64_t window = 0, ratio = 0;
  Kind kind = Kind::kWindowOnly;
  int64_t k = 0;  // list length of kSelected
};

struct AttentionProblem {
  Documents documents;
  Windows windows;
  at::Tensor q, kv, entries, selected, sink;
  int64_t window = 0;
  double scale = 0.0;

  SparseAttentionResult run() const {
    return sparse_attention(q, kv, entries, selected, sink, documents, entries.defined() ? &windows : nullptr, window,
                            scale);
  }
  AttentionProblem as(at::ScalarType type) const {
    AttentionProblem other = *this;
    const auto sums = type == at::kDouble ? at::kDouble : at::kFloat;
    other.q = q.to(type), other.kv = kv.to(type), other.sink = sink.to(sums);
    if (entries.defined()) other.entries = entries.to(type);
    return other;
  }
};

// Every query picks some of the entries that it sees; every fifth query picks none.
at::Tensor some_lists(const Windows& windows, int64_t num_tokens, int64_t k) {
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

AttentionProblem make_problem(const Case& c, int64_t heads, int64_t width) {
  AttentionProblem s;
  s.documents = make_documents(c.lengths);
  s.windows = make_windows(s.documents, c.ratio);
  const int64_t num_tokens = s.documents.num_tokens();
  s.q = random_tensor({num_tokens, heads, width}, "q", 2.0);
  s.kv = random_tensor({num_tokens, width}, "kv");
  s.sink = random_tensor({heads}, "sink");
  if (c.kind != Kind::kWindowOnly) s.entries = random_tensor({s.windows.num_entries(), width}, "entries");
  if (c.kind == Kind::kSelected) s.selected = some_lists(s.windows, num_tokens, c.k);
  s.window = c.window;
  s.scale = 1.0 / std::sqrt(static_cast<double>(width));
  return s;
}

// The formulas of the contract, one query, head and key at a time, with visibility worked out from lengths alone.
SparseAttentionResult literal_attention(const Case& c, const AttentionProblem& setup) {
  const AttentionProblem s = setup.as(at::kDouble);
  const int64_t heads = s.q.size(1), width = s.q.size(2);
  const at::Tensor o = at::zeros(s.q.sizes(), at::kDouble), lse = at::empty({s.q.size(0), heads}, at::kDouble);
  int64_t document = 0, first_entry = 0;
  for (const int64_t length : c.lengths) {
    for (int64_t t = 0; t < length; ++t) {
      std::vector<at::Tensor> keys;
      for (int64_t j = 0; j <= t; ++j) {
        if (j > t - c.window) keys.push_back(s.kv[document + j]);
      }
      for (int64_t w = 0; w < (t + 1) / c.ratio && c.kind != Kind::kWindowOnly; ++w) {
        const int64_t entry = first_entry + w;
        if (c.kind == Kind::kAllVisible || s.selected[document + t].eq(entry).any().item<bool>()) {
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

std::vector<at::Tensor> gradients(AttentionProblem s) {
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

const std::vector<int64_t> kLengths{1, 3, 4, 5, 17, 33};

TEST(SparseAttention, EqualsTheLiteralFormulas) {
  for (const int64_t window : {1, 4, 50}) {
    for (const int64_t ratio : {4, 7}) {
      for (const Case& c :
           {Case{kLengths, window, ratio, Kind::kWindowOnly}, Case{kLengths, window, ratio, Kind::kAllVisible},
            Case{kLengths, window, ratio, Kind::kSelected, 1}, Case{kLengths, window, ratio, Kind::kSelected, 4},
            Case{kLengths, window, ratio, Kind::kSelected, 15}}) {
        const AttentionProblem s = make_problem(c, 2, 3);
        const SparseAttentionResult result = s.run(), expected = literal_attention(c, s);
        const std::string name = "window " + std::to_string(window) + " ratio " + std::to_string(ratio) + " kind " +
                                 std::to_string(static_cast<int>(c.kind)) + " k " + std::to_string(c.k);
        EXPECT_LT(relative_difference(result.o_THP, expected.o_THP), 1e-12) << name;
        EXPECT_LT(relative_difference(result.lse_TH, expected.lse_TH), 1e-12) << name;
      }
    }
  }
}

TEST(SparseAttention, GradientsMatchFiniteDifferences) {
  const std::vector<int64_t> lengths{5, 1, 14};
  // k = 1 copies listed rows for the later queries, k = 4 masks a range.
  for (const Case& c : {Case{lengths, 4, 2, Kind::kWindowOnly}, Case{lengths, 4, 2, Kind::kAllVisible},
                        Case{lengths, 4, 2, Kind::kSelected, 1}, Case{lengths, 4, 2, Kind::kSelected, 4}}) {
    const AttentionProblem s = make_problem(c, 2, 3);
    const auto function = [&](const Inputs& x) -> Outputs {
      AttentionProblem moved = s;
      moved.q = x[0], moved.kv = x[1], moved.sink = x[2];
      if (s.entries.defined()) moved.entries = x[3];
      return {moved.run().o_THP};
    };
    Inputs inputs{s.q.clone().requires_grad_(true), s.kv.clone().requires_grad_(true),
                  s.sink.clone().requires_grad_(true)};
    if (s.entries.defined()) inputs.push_back(s.entries.clone().requires_grad_(true));
    expect_gradients_match(function, inputs, 1e-8);
  }
}

TEST(SparseAttention, ListsAndMaskedRangesAgree) {
  const AttentionProblem lists = make_problem({{40, 90}, 8, 2, Kind::kSelected, 3}, 3, 5);
  AttentionProblem range = lists;
  range.selected = at::cat({lists.selected, at::full({130, 40}, -1, at::kLong)}, 1);
  EXPECT_LT(relative_difference(lists.run().o_THP, range.run().o_THP), 1e-12);
  EXPECT_LT(relative_difference(lists.run().lse_TH, range.run().lse_TH), 1e-12);
  const auto of_lists = gradients(lists), of_range = gradients(range);
  for (size_t i = 0; i < of_lists.size(); ++i) EXPECT_LT(relative_difference(of_lists[i], of_range[i]), 1e-12) << i;
}

TEST(SparseAttention, SelectingEverythingVisibleEqualsNoSelection) {
  AttentionProblem s = make_problem({{9, 30}, 5, 3, Kind::kAllVisible}, 2, 4);
  const at::Tensor all = s.run().o_THP;
  s.selected = at::full({39, 10}, -1, at::kLong);
  for (int64_t t = 0; t < 39; ++t) {
    const auto begin = s.windows.visible_begin_T[t].item<int64_t>(), end = s.windows.visible_end_T[t].item<int64_t>();
    for (int64_t c = begin; c < end; ++c) s.selected[t][c - begin] = c;
  }
  EXPECT_LT(relative_difference(s.run().o_THP, all), 1e-12);
}

TEST(SparseAttention, ExtremeSinksAndSharpScoresStayFinite) {
  for (const Kind kind : {Kind::kWindowOnly, Kind::kAllVisible, Kind::kSelected}) {
    const Case c{{5, 33}, 6, 4, kind, 2};
    for (const double sink : {30.0, -30.0}) {
      AttentionProblem s = make_problem(c, 2, 4);
      s.sink = at::full({2}, sink, at::kDouble);
      s.q = s.q * 10;
      const auto expected = literal_attention(c, s), result = s.as(at::kFloat).run();
      EXPECT_LT(relative_difference(result.o_THP, expected.o_THP), 1e-5) << sink;
      EXPECT_LT(relative_difference(result.lse_TH, expected.lse_TH), 1e-5) << sink;
      for (const at::Tensor& grad : gradients(s.as(at::kFloat))) EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
    }
  }
}

TEST(SparseAttention, Fp32IsCloseToFp64) {
  for (const Case& c : {Case{{33, 200}, 16, 4, Kind::kAllVisible}, Case{{33, 200}, 16, 4, Kind::kSelected, 6}}) {
    const AttentionProblem s = make_problem(c, 4, 16);
    EXPECT_LT(relative_l2(s.as(at::kFloat).run().o_THP, s.run().o_THP), 1e-5);
    EXPECT_LT((s.as(at::kFloat).run().lse_TH - s.run().lse_TH).abs().max().item<double>(), 1e-5);
    const auto narrow = gradients(s.as(at::kFloat)), wide = gradients(s);
    for (size_t i = 0; i < wide.size(); ++i) EXPECT_LT(relative_l2(narrow[i], wide[i]), 2e-5) << i;
  }
}

TEST(SparseAttention, Bf16RoundsOnce) {
  for (const Case& c : {Case{{33, 100}, 16, 4, Kind::kAllVisible}, Case{{33, 100}, 16, 4, Kind::kSelected, 4}}) {
    const AttentionProblem narrow = make_problem(c, 4, 16).as(at::kBFloat16), wide = narrow.as(at::kDouble);
    const at::Tensor o = narrow.run().o_THP, expected = wide.run().o_THP;
    EXPECT_EQ(o.scalar_type(), at::kBFloat16);
    EXPECT_EQ(narrow.run().lse_TH.scalar_type(), at::kFloat);
    EXPECT_LT(relative_l2(o, expected), 2e-3);
    // One rounding is half a unit in the last of 8 bits.
    const at::Tensor allowed = expected.abs() * std::pow(2.0, -8) + 1e-5;
    EXPECT_TRUE(((o.to(at::kDouble) - expected).abs() <= allowed).all().item<bool>());
    const auto grad = gradients(narrow), reference = gradients(wide);
    for (size_t i = 0; i < grad.size(); ++i) EXPECT_LT(relative_l2(grad[i], reference[i]), 1e-2) << i;
    EXPECT_EQ(grad[0].scalar_type(), at::kBFloat16);
    EXPECT_EQ(grad[2].scalar_type(), at::kFloat);
  }
}

TEST(SparseAttention, TheNumberOfThreadsDoesNotChangeABit) {
  for (const Case& c : {Case{{300, 40}, 32, 4, Kind::kAllVisible}, Case{{300, 40}, 32, 4, Kind::kSelected, 5},
                        Case{{20}, 32, 4, Kind::kAllVisible}}) {
    const AttentionProblem s = make_problem(c, 4, 32).as(at::kFloat);
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const at::Tensor o_one = s.run().o_THP;
    const auto one = gradients(s);
    at::set_num_threads(2);
    const at::Tensor o_two = s.run().o_THP;
    const auto two = gradients(s);
    at::set_num_threads(before);
    EXPECT_TRUE(at::equal(o_one, o_two));
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << i;
  }
}

TEST(SparseAttention, NothingCrossesADocumentOrComesFromTheFuture) {
  for (const Kind kind : {Kind::kAllVisible, Kind::kSelected}) {
    const AttentionProblem s = make_problem({{20, 30}, 64, 4, kind, 2}, 2, 4);
    const at::Tensor before = s.run().o_THP;
    AttentionProblem moved = s;
    moved.q = s.q.clone(), moved.kv = s.kv.clone(), moved.entries = s.entries.clone();
    moved.q.slice(0, 0, 20).add_(1), moved.kv.slice(0, 0, 20).add_(1), moved.entries.slice(0, 0, 5).add_(1);
    EXPECT_TRUE(at::equal(moved.run().o_THP.slice(0, 20), before.slice(0, 20)));
    // Entry 4 of the second document closes with its token 19.
    AttentionProblem future = s;
    future.kv = s.kv.clone(), future.entries = s.entries.clone();
    future.kv.slice(0, 20 + 19).add_(1), future.entries.slice(0, 5 + 4).add_(1);
    const at::Tensor after = future.run().o_THP;
    EXPECT_TRUE(at::equal(after.slice(0, 0, 20 + 19), before.slice(0, 0, 20 + 19)));
    EXPECT_FALSE(at::equal(after[20 + 19], before[20 + 19]));
  }
}

TEST(SparseAttention, EachGradientCanBeAskedForAlone) {
  const AttentionProblem s = make_problem({{6, 15}, 4, 2, Kind::kSelected, 1}, 2, 3);
  const auto all = gradients(s);
  for (size_t i = 0; i < 4; ++i) {
    AttentionProblem one = s;
    at::Tensor* inputs[]{&one.q, &one.kv, &one.sink, &one.entries};
    *inputs[i] = inputs[i]->clone().requires_grad_(true);
    const at::Tensor o = one.run().o_THP;
    const auto grad = torch::autograd::grad({o}, {*inputs[i]}, {random_tensor(o.sizes(), "cotangent")});
    EXPECT_TRUE(at::equal(grad[0], all[i])) << i;
  }
}

TEST(SparseAttention, EmptyStreamsAndMissingEntriesGiveZeroGradients) {
  const AttentionProblem nothing = make_problem({{}, 4, 4, Kind::kAllVisible}, 2, 3);
  EXPECT_EQ(nothing.run().o_THP.size(0), 0);
  for (const at::Tensor& grad : gradients(nothing)) EXPECT_EQ(grad.abs().sum().item<double>(), 0.0);
  const Case c{{3, 2}, 4, 4, Kind::kSelected, 0};
  const AttentionProblem no_entries = make_problem(c, 2, 3);
  EXPECT_LT(relative_difference(no_entries.run().o_THP, literal_attention(c, no_entries).o_THP), 1e-12);
  EXPECT_EQ(gradients(no_entries)[3].sizes(), (at::IntArrayRef{0, 3}));
  // Entries that nobody selects.
  AttentionProblem unused = make_problem({{12}, 4, 4, Kind::kSelected, 2}, 2, 3);
  unused.selected.fill_(-1);
  EXPECT_TRUE(at::equal(gradients(unused)[3], at::zeros({3, 3}, at::kDouble)));
}

TEST(SparseAttention, BadArgumentsAreRefused) {
  const AttentionProblem s = make_problem({{12}, 4, 4, Kind::kSelected, 2}, 2, 3);
  AttentionProblem bad = s;
  bad.selected = at::full({12, 2}, 2, at::kLong);  // entry 2 closes with token 11 only
  EXPECT_THROW(bad.run(), c10::Error);
  bad.selected = s.selected.to(at::kInt);
  EXPECT_THROW(bad.run(), c10::Error);
  bad = s, bad.kv = s.kv.slice(0, 0, 11);
  EXPECT_THROW(bad.run(), c10::Error);
  bad = s, bad.entries = s.entries.slice(0, 0, 2);
  EXPECT_THROW(bad.run(), c10::Error);
  bad = s, bad.sink = at::zeros({3}, at::kDouble);
  EXPECT_THROW(bad.run(), c10::Error);
  EXPECT_THROW(sparse_attention(s.q, s.kv, s.entries, {}, s.sink, s.documents, nullptr, 4, 1.0), c10::Error);
  EXPECT_THROW(sparse_attention(s.q, s.kv, {}, s.selected, s.sink, s.documents, &s.windows, 4, 1.0), c10::Error);
  EXPECT_THROW(sparse_attention(s.q, s.kv, {}, {}, s.sink, s.documents, nullptr, 0, 1.0), c10::Error);
}

TEST(SparseAttention, MemoryIsLinearInTheNumberOfTokens) {
  const int64_t num_tokens = 8192;
  AttentionProblem s;
  s.documents = make_documents({num_tokens});
  s.windows = make_windows(s.documents, 4);
  s.q = random_tensor({num_tokens, 2, 16}, "q").to(at::kFloat);
  s.kv = random_tensor({num_tokens, 16}, "kv").to(at::kFloat);
  s.entries = random_tensor({num_tokens / 4, 16}, "entries").to(at::kFloat);
  s.sink = at::zeros({2}, at::kFloat);
  s.window = 128, s.scale = 0.25;
  const uint64_t before = peak_resident_bytes();
  gradients(s);
  // Scores of all queries and entries would take 134 MB a copy, and forward and backward need several.
  EXPECT_LT(peak_resident_bytes() - before, uint64_t{110} << 20);
}

}  // namespace
}  // namespace asterism::ops
