#include "asterism/ops/sparse_attention.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>

#include "asterism/core/memory.h"
#include "tests/support/attention_problem.h"
#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::attention_gradients;
using asterism::testing::AttentionCase;
using asterism::testing::AttentionKind;
using asterism::testing::AttentionProblem;
using asterism::testing::expect_gradients_match;
using asterism::testing::Inputs;
using asterism::testing::literal_attention;
using asterism::testing::make_attention;
using asterism::testing::Outputs;
using asterism::testing::random_tensor;
using asterism::testing::relative_difference;
using asterism::testing::relative_l2;

const std::vector<int64_t> kLengths{1, 3, 4, 5, 17, 33};

TEST(SparseAttention, EqualsTheLiteralFormulas) {
  for (const int64_t window : {1, 4, 50}) {
    for (const int64_t ratio : {4, 7}) {
      for (const AttentionCase& c : {AttentionCase{kLengths, window, ratio, AttentionKind::kWindowOnly},
                                     AttentionCase{kLengths, window, ratio, AttentionKind::kAllVisible},
                                     AttentionCase{kLengths, window, ratio, AttentionKind::kSelected, 1},
                                     AttentionCase{kLengths, window, ratio, AttentionKind::kSelected, 4},
                                     AttentionCase{kLengths, window, ratio, AttentionKind::kSelected, 15}}) {
        const AttentionProblem s = make_attention(c, 2, 3);
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
  for (const AttentionCase& c : {AttentionCase{lengths, 4, 2, AttentionKind::kWindowOnly},
                                 AttentionCase{lengths, 4, 2, AttentionKind::kAllVisible},
                                 AttentionCase{lengths, 4, 2, AttentionKind::kSelected, 1},
                                 AttentionCase{lengths, 4, 2, AttentionKind::kSelected, 4}}) {
    const AttentionProblem s = make_attention(c, 2, 3);
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
  const AttentionProblem lists = make_attention({{40, 90}, 8, 2, AttentionKind::kSelected, 3}, 3, 5);
  AttentionProblem range = lists;
  range.selected = at::cat({lists.selected, at::full({130, 40}, -1, at::kLong)}, 1);
  EXPECT_LT(relative_difference(lists.run().o_THP, range.run().o_THP), 1e-12);
  EXPECT_LT(relative_difference(lists.run().lse_TH, range.run().lse_TH), 1e-12);
  const auto of_lists = attention_gradients(lists), of_range = attention_gradients(range);
  for (size_t i = 0; i < of_lists.size(); ++i) EXPECT_LT(relative_difference(of_lists[i], of_range[i]), 1e-12) << i;
}

TEST(SparseAttention, SelectingEverythingVisibleEqualsNoSelection) {
  AttentionProblem s = make_attention({{9, 30}, 5, 3, AttentionKind::kAllVisible}, 2, 4);
  const at::Tensor all = s.run().o_THP;
  s.selected = at::full({39, 10}, -1, at::kLong);
  for (int64_t t = 0; t < 39; ++t) {
    const auto begin = s.windows.visible_begin_T[t].item<int64_t>(), end = s.windows.visible_end_T[t].item<int64_t>();
    for (int64_t c = begin; c < end; ++c) s.selected[t][c - begin] = c;
  }
  EXPECT_LT(relative_difference(s.run().o_THP, all), 1e-12);
}

TEST(SparseAttention, ExtremeSinksAndSharpScoresStayFinite) {
  for (const AttentionKind kind : {AttentionKind::kWindowOnly, AttentionKind::kAllVisible, AttentionKind::kSelected}) {
    const AttentionCase c{{5, 33}, 6, 4, kind, 2};
    for (const double sink : {30.0, -30.0}) {
      AttentionProblem s = make_attention(c, 2, 4);
      s.sink = at::full({2}, sink, at::kDouble);
      s.q = s.q * 10;
      const auto expected = literal_attention(c, s), result = s.as(at::kFloat).run();
      EXPECT_LT(relative_difference(result.o_THP, expected.o_THP), 1e-5) << sink;
      EXPECT_LT(relative_difference(result.lse_TH, expected.lse_TH), 1e-5) << sink;
      for (const at::Tensor& grad : attention_gradients(s.as(at::kFloat)))
        EXPECT_TRUE(at::isfinite(grad).all().item<bool>());
    }
  }
}

TEST(SparseAttention, Fp32IsCloseToFp64) {
  for (const AttentionCase& c : {AttentionCase{{33, 200}, 16, 4, AttentionKind::kAllVisible},
                                 AttentionCase{{33, 200}, 16, 4, AttentionKind::kSelected, 6}}) {
    const AttentionProblem s = make_attention(c, 4, 16);
    EXPECT_LT(relative_l2(s.as(at::kFloat).run().o_THP, s.run().o_THP), 1e-5);
    EXPECT_LT((s.as(at::kFloat).run().lse_TH - s.run().lse_TH).abs().max().item<double>(), 1e-5);
    const auto narrow = attention_gradients(s.as(at::kFloat)), wide = attention_gradients(s);
    for (size_t i = 0; i < wide.size(); ++i) EXPECT_LT(relative_l2(narrow[i], wide[i]), 2e-5) << i;
  }
}

TEST(SparseAttention, Bf16IsCloseToFp64) {
  for (const AttentionCase& c : {AttentionCase{{33, 100}, 16, 4, AttentionKind::kAllVisible},
                                 AttentionCase{{33, 100}, 16, 4, AttentionKind::kSelected, 4}}) {
    const AttentionProblem narrow = make_attention(c, 4, 16).as(at::kBFloat16), wide = narrow.as(at::kDouble);
    const at::Tensor o = narrow.run().o_THP, expected = wide.run().o_THP;
    EXPECT_EQ(o.scalar_type(), at::kBFloat16);
    EXPECT_EQ(narrow.run().lse_TH.scalar_type(), at::kFloat);
    EXPECT_LT(relative_l2(o, expected), 5e-3);
    const auto grad = attention_gradients(narrow), reference = attention_gradients(wide);
    for (size_t i = 0; i < grad.size(); ++i) EXPECT_LT(relative_l2(grad[i], reference[i]), 1e-2) << i;
    EXPECT_EQ(grad[0].scalar_type(), at::kBFloat16);
    EXPECT_EQ(grad[2].scalar_type(), at::kFloat);
  }
}

TEST(SparseAttention, WithARotationTheOutputIsTurnedBack) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    AttentionProblem s = make_attention({{5, 20}, 6, 4, AttentionKind::kAllVisible}, 3, 8).as(type);
    const at::Tensor o = s.run().o_THP;
    const auto table = make_rope_table({.width = 6}, s.documents.position_T, type);
    const auto composed = [&] {
      AttentionProblem plain = s;
      std::vector<at::Tensor> inputs;
      for (at::Tensor* x : {&plain.q, &plain.kv, &plain.sink, &plain.entries}) {
        *x = x->clone().requires_grad_(true);
        inputs.push_back(*x);
      }
      const at::Tensor turned = rope(plain.run().o_THP, table, /*inverse=*/true);
      return torch::autograd::grad({turned}, inputs, {random_tensor(o.sizes(), "cotangent").to(type)});
    }();
    s.rotation = table;
    const double tolerance = type == at::kDouble ? 1e-12 : 2e-6;
    EXPECT_LT(relative_difference(s.run().o_THP, rope(o, table, /*inverse=*/true)), tolerance);
    const auto fused = attention_gradients(s);
    for (size_t i = 0; i < fused.size(); ++i) EXPECT_LT(relative_difference(fused[i], composed[i]), tolerance) << i;
  }
}

TEST(SparseAttention, TheNumberOfThreadsDoesNotChangeABit) {
  for (const AttentionCase& c : {AttentionCase{{300, 40}, 32, 4, AttentionKind::kAllVisible},
                                 AttentionCase{{300, 40}, 32, 4, AttentionKind::kSelected, 5},
                                 AttentionCase{{20}, 32, 4, AttentionKind::kAllVisible}}) {
    const AttentionProblem s = make_attention(c, 4, 32).as(at::kFloat);
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const at::Tensor o_one = s.run().o_THP;
    const auto one = attention_gradients(s);
    at::set_num_threads(2);
    const at::Tensor o_two = s.run().o_THP;
    const auto two = attention_gradients(s);
    at::set_num_threads(before);
    EXPECT_TRUE(at::equal(o_one, o_two));
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << i;
  }
}

TEST(SparseAttention, NothingCrossesADocumentOrComesFromTheFuture) {
  for (const AttentionKind kind : {AttentionKind::kAllVisible, AttentionKind::kSelected}) {
    const AttentionProblem s = make_attention({{20, 30}, 64, 4, kind, 2}, 2, 4);
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
  const AttentionProblem s = make_attention({{6, 15}, 4, 2, AttentionKind::kSelected, 1}, 2, 3);
  const auto all = attention_gradients(s);
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
  const AttentionProblem nothing = make_attention({{}, 4, 4, AttentionKind::kAllVisible}, 2, 3);
  EXPECT_EQ(nothing.run().o_THP.size(0), 0);
  for (const at::Tensor& grad : attention_gradients(nothing)) EXPECT_EQ(grad.abs().sum().item<double>(), 0.0);
  const AttentionCase c{{3, 2}, 4, 4, AttentionKind::kSelected, 0};
  const AttentionProblem no_entries = make_attention(c, 2, 3);
  EXPECT_LT(relative_difference(no_entries.run().o_THP, literal_attention(c, no_entries).o_THP), 1e-12);
  EXPECT_EQ(attention_gradients(no_entries)[3].sizes(), (at::IntArrayRef{0, 3}));
  // Entries that nobody selects.
  AttentionProblem unused = make_attention({{12}, 4, 4, AttentionKind::kSelected, 2}, 2, 3);
  unused.selected.fill_(-1);
  EXPECT_TRUE(at::equal(attention_gradients(unused)[3], at::zeros({3, 3}, at::kDouble)));
}

TEST(SparseAttention, BadArgumentsAreRefused) {
  const AttentionProblem s = make_attention({{12}, 4, 4, AttentionKind::kSelected, 2}, 2, 3);
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
  bad = s, bad.rotation = make_rope_table({.width = 2}, at::arange(11), at::kDouble);
  EXPECT_THROW(bad.run(), c10::Error);
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
  attention_gradients(s);
  // Scores of all queries and entries would take 134 MB a copy, and forward and backward need several.
  EXPECT_LT(peak_resident_bytes() - before, uint64_t{110} << 20);
}

}  // namespace
}  // namespace asterism::ops
