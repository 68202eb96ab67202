#include <gtest/gtest.h>

#include <cmath>

#include "asterism/ops/compressor.h"
#include "asterism/ops/indexer_kl.h"
#include "tests/ops/all/checks.h"
#include "tests/support/attention_problem.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/precision.h"

namespace asterism::testing {

namespace {

using ops::cpu::Level;

std::vector<int64_t> document_lengths(int64_t rows) {
  if (rows <= 1) return std::vector<int64_t>(static_cast<size_t>(rows), 1);
  return {1, rows - 1};
}

// ---- sparse attention ---------------------------------------------------------------------------------------------

AttentionProblem attention_of(AttentionKind kind, Shape shape, int64_t rows) {
  return make_attention({.lengths = document_lengths(rows),
                         .window = at_shape(shape, 2, 9, 32),
                         .ratio = at_shape(shape, 2, 3, 4),
                         .kind = kind,
                         .k = at_shape(shape, 2, 5, 12)},
                        at_shape(shape, 2, 5, 8), at_shape(shape, 3, 21, 64));
}

AttentionProblem with_inputs(AttentionProblem s, const Inputs& in) {
  s.q = in[0], s.kv = in[1], s.sink = in[2];
  if (s.entries.defined()) s.entries = in[3];
  return s;
}

Problem problem_of(const AttentionProblem& s) {
  Problem problem{.inputs = {s.q, s.kv, s.sink},
                  .run = [s](const Inputs& in) { return Outputs{with_inputs(s, in).run().o_THP}; },
                  .observe = [s](const Inputs& in) { return Outputs{with_inputs(s, in).run().lse_TH}; }};
  if (s.entries.defined()) problem.inputs.push_back(s.entries);
  for (at::Tensor& x : problem.inputs) x.requires_grad_(true);
  return problem;
}

// Lists of -1 give what the window alone gives, and entries that nobody selects get zeros.
void expect_unused_lists_select_nothing() {
  AttentionProblem s = attention_of(AttentionKind::kSelected, Shape::kTail, 37), window = s;
  s.selected = at::full_like(s.selected, -1);
  window.entries = window.selected = at::Tensor();
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    at_every_level(Level::kPortable, [&] {
      EXPECT_LE(relative_l2(s.as(type).run().o_THP, window.as(type).run().o_THP), 1e-5);
      EXPECT_EQ(attention_gradients(s.as(type)).back().abs().max().item<double>(), 0.0);
    });
  }
}

void expect_a_repeated_entry_counts_once() {
  AttentionProblem s = attention_of(AttentionKind::kSelected, Shape::kTail, 37), twice = s;
  twice.selected = at::cat({s.selected, s.selected}, 1);
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    at_every_level(Level::kPortable, [&] {
      EXPECT_LE(relative_l2(twice.as(type).run().o_THP, s.as(type).run().o_THP), type == at::kBFloat16 ? 5e-3 : 1e-5);
    });
  }
}

// Scores in the hundreds, and sinks that take everything or nothing.
void expect_extreme_scores_are_fine(const Operator& op, AttentionKind kind) {
  AttentionProblem s = attention_of(kind, Shape::kTail, 37);
  s.q = s.q * 30;
  s.sink = at::linspace(-30, 30, s.sink.numel(), at::kDouble);
  const Problem problem = problem_of(s);
  for (const at::Tensor& x : evaluate(problem, at::kFloat).all()) EXPECT_TRUE(x.isfinite().all().item<bool>());
  Operator fp32 = op;
  fp32.narrow.clear();  // rounding p and scores of hundreds to bf16 is another function
  expect_close_to_fp64(fp32, problem, /*slack=*/30);
}

Operator attention_operator(const std::string& name, AttentionKind kind) {
  Operator op{.name = name,
              .make = [kind](Shape shape, int64_t rows) { return problem_of(attention_of(kind, shape, rows)); },
              .narrow = {at::kBFloat16, at::kBFloat16, at::kFloat, at::kBFloat16}};
  op.answers = {{Property::kTies, kNoChoice}, {Property::kNan, kNoPromise}};
  op.answers.insert({Property::kExtremes, Answer([op, kind] { expect_extreme_scores_are_fine(op, kind); })});
  if (kind == AttentionKind::kSelected) {
    op.answers.insert({Property::kUnused, Answer(expect_unused_lists_select_nothing)});
    op.answers.insert({Property::kDuplicates, Answer(expect_a_repeated_entry_counts_once)});
  } else {
    op.answers.insert({Property::kUnused, kNoIndices});
    op.answers.insert({Property::kDuplicates, kNoIndices});
  }
  return op;
}

// ---- the indexer's loss -------------------------------------------------------------------------------------------

// Student q and key, teacher q and entries, student weight, teacher lse.
Problem kl_problem(Shape shape, int64_t rows, bool unused = false) {
  const ops::Windows windows = ops::make_windows(ops::make_documents(document_lengths(rows)), at_shape(shape, 2, 3, 4));
  const int64_t heads = at_shape(shape, 2, 5, 8), width = at_shape(shape, 3, 13, 32), entries = windows.num_entries();
  AttentionProblem lists = attention_of(AttentionKind::kSelected, shape, rows);
  const at::Tensor selected = unused ? at::full_like(lists.selected, -1) : lists.selected;
  return {.inputs = {random_leaf({rows, heads, width}, "index q"), random_leaf({entries, width}, "index key"),
                     random_tensor({rows, 2, width}, "teacher q"), random_tensor({entries, width}, "teacher entries"),
                     random_leaf({rows, heads}, "index weight"), random_tensor({rows, 2}, "lse") + 3},
          .run = [=](const Inputs& in) -> Outputs {
            return {ops::indexer_kl({in[2], in[3], in[5], 0.3}, in[0], in[1], in[4], selected, windows)};
          },
          .observe = {}};
}

void expect_no_loss_without_entries() {
  const Problem problem = kl_problem(Shape::kTail, 37, /*unused=*/true);
  at_every_level(Level::kPortable, [&] {
    for (const at::Tensor& x : evaluate(problem, at::kFloat).all()) EXPECT_EQ(x.abs().max().item<double>(), 0.0);
  });
}

Operator kl_operator() {
  Operator op{.name = "IndexerKl",
              .make = [](Shape shape, int64_t rows) { return kl_problem(shape, rows); },
              .narrow = {at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kBFloat16, at::kFloat, at::kFloat}};
  op.answers = {{Property::kTies, kNoChoice},
                {Property::kUnused, Answer(expect_no_loss_without_entries)},
                {Property::kDuplicates, "lists come from index_topk, which names an entry once"},
                {Property::kNan, kNoPromise}};
  op.answers.insert({Property::kExtremes, Answer([op] { expect_extremes_are_fine(op, 0, 20.0, /*slack=*/20); })});
  return op;
}

// ---- the compressor -----------------------------------------------------------------------------------------------

Problem compressor_problem(bool overlap, Shape shape, int64_t rows) {
  const ops::Documents documents = ops::make_documents(document_lengths(rows));
  const ops::Windows windows = ops::make_windows(documents, at_shape(shape, 2, 3, 4));
  const int64_t channels = at_shape(shape, 5, 37, 260), width = (overlap ? 2 : 1) * channels;
  const ops::RopeConfig rotation{.width = 4};
  return {.inputs = {random_leaf({rows, width}, "u"), random_leaf({rows, width}, "gate"),
                     random_leaf({windows.ratio, width}, "ape"), random_leaf({channels}, "norm")},
          .run = [=](const Inputs& in) -> Outputs {
            const ops::RopeTable table = ops::make_rope_table(rotation, windows.position_C, in[0].scalar_type());
            return {ops::compress(in[0], in[1], in[2], in[3], documents, windows, overlap, table, 1e-6)};
          },
          .observe = {}};
}

Operator compressor_operator(const std::string& name, bool overlap) {
  Operator op{.name = name,
              .make = [overlap](Shape shape, int64_t rows) { return compressor_problem(overlap, shape, rows); },
              .narrow = {}};
  op.rows[Shape::kSmall] = 6;  // a first window, one with a predecessor, a tail
  op.answers = {{Property::kTies, kNoChoice},
                {Property::kUnused, kNoIndices},
                {Property::kDuplicates, kNoIndices},
                {Property::kNan, kNoPromise}};
  op.answers.insert({Property::kExtremes, Answer([op] { expect_extremes_are_fine(op, 1, 1e3, /*slack=*/10); })});
  return op;
}

}  // namespace

std::vector<Operator> attention_operators() {
  return {attention_operator("WindowAttention", AttentionKind::kWindowOnly),
          attention_operator("VisibleAttention", AttentionKind::kAllVisible),
          attention_operator("SelectedAttention", AttentionKind::kSelected),
          kl_operator(),
          compressor_operator("Compressor", false),
          compressor_operator("OverlapCompressor", true)};
}

}  // namespace asterism::testing
