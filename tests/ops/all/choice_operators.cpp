#include <gtest/gtest.h>

#include <cmath>

#include "asterism/ops/experts.h"
#include "asterism/ops/indexer.h"
#include "asterism/ops/linear_cross_entropy.h"
#include "asterism/ops/router.h"
#include "tests/ops/all/checks.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/precision.h"

namespace asterism::testing {

namespace {

using ops::cpu::Level;

at::Tensor small_integers(at::IntArrayRef shape, const std::string& name) {
  return random_tensor(shape, name, 2.0).round();
}

// ---- the indexer's choice -----------------------------------------------------------------------------------------

ops::Windows choice_windows(Shape shape, int64_t rows) {
  const std::vector<int64_t> lengths = rows > 1 ? std::vector<int64_t>{1, rows - 1} : std::vector<int64_t>(rows, 1);
  return ops::make_windows(ops::make_documents(lengths), at_shape(shape, 1, 1, 2));
}

// Integers: scores are exact in every type, so the choice must be that of fp64, ties included.
Problem index_problem(Shape shape, int64_t rows) {
  const ops::Windows windows = choice_windows(shape, rows);
  const int64_t heads = at_shape(shape, 2, 7, 8), width = at_shape(shape, 3, 13, 64), k = at_shape(shape, 2, 5, 20);
  return {.inputs = {small_integers({rows, heads, width}, "q"), small_integers({windows.num_entries(), width}, "key"),
                     small_integers({rows, heads}, "weight")},
          .run = {},
          .observe = [=](const Inputs& in) -> Outputs {
            const at::Tensor scores = ops::index_scores(in[0], in[1], in[2], windows);
            return {ops::index_topk(in[0], in[1], in[2], windows, k), at::where(scores.isfinite(), scores, 0.0)};
          }};
}

void expect_ties_go_to_the_first_entries() {
  const ops::Windows windows = choice_windows(Shape::kTail, 37);
  const at::Tensor first = at::tensor(std::vector<int64_t>{1, 2, 3});  // entry 0 is another document's
  at_every_level(Level::kPortable, [&] {
    const at::Tensor chosen = ops::index_topk(at::ones({37, 2, 4}), at::ones({37, 4}), at::ones({37, 2}), windows, 3);
    EXPECT_TRUE(at::equal(chosen.slice(0, 4), first.expand({33, 3})));
  });
}

void expect_scores_that_are_not_numbers_are_refused() {
  const ops::Windows windows = choice_windows(Shape::kTail, 37);
  const at::Tensor key = at::ones({37, 4});
  key[5][3] = NAN;
  at_every_level(Level::kPortable, [&] {
    EXPECT_THROW(ops::index_topk(at::ones({37, 2, 4}), key, at::ones({37, 2}), windows, 3), c10::Error);
  });
}

Operator index_operator() {
  Operator op{.name = "IndexTopk",
              .make = index_problem,
              .narrow = {at::kBFloat16, at::kBFloat16, at::kBFloat16},
              .same_bits_at_levels = true};  // of integers
  op.answers = {{Property::kGradients, kNotDifferentiable},
                {Property::kTies, Answer(expect_ties_go_to_the_first_entries)},
                {Property::kUnused, "makes the lists"},
                {Property::kDuplicates, "makes the lists"},
                {Property::kNan, Answer(expect_scores_that_are_not_numbers_are_refused)}};
  op.answers.insert({Property::kExtremes, Answer([op] {
                       expect_extremes_are_fine(op, 0, 0x1p40);  // a power of two: still exact
                     })});
  return op;
}

// ---- the router ---------------------------------------------------------------------------------------------------

constexpr int64_t kChosen = 3;

at::Tensor some_experts(int64_t rows, int64_t num_experts) {
  const at::Tensor row = at::arange(rows).unsqueeze(1), slot = at::arange(kChosen).unsqueeze(0);
  return (row * 5 + slot * 2 + row.mul(slot)).remainder(num_experts);  // some rows name one expert twice
}

// logits, bias
Problem router_problem(Shape shape, int64_t rows) {
  const int64_t num_experts = at_shape(shape, 5, 13, 64);
  const at::Tensor experts = some_experts(rows, num_experts);
  return {.inputs = {random_tensor({rows, num_experts}, "logits", 2.0).requires_grad_(true),
                     random_tensor({num_experts}, "bias")},
          .run = [=](const Inputs& in) -> Outputs { return {ops::router_weights(in[0], experts, 1.5)}; },
          .observe = [](const Inputs& in) -> Outputs {
            return {ops::choose_experts(in[0], in[1], kChosen), ops::router_scores(in[0])};
          }};
}

void expect_equal_scores_choose_the_first_experts() {
  const at::Tensor first = at::arange(kChosen).expand({4, kChosen});
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    EXPECT_TRUE(at::equal(ops::choose_experts(at::ones({4, 13}, type), at::zeros({13}), kChosen), first));
  }
}

void expect_not_a_number_is_chosen_last() {
  const at::Tensor logits = at::tensor({NAN, 1.0F, NAN, 2.0F}).unsqueeze(0);
  const at::Tensor expected = at::tensor({0, 1, 3}, at::kLong).unsqueeze(0);
  EXPECT_TRUE(at::equal(ops::choose_experts(logits, at::zeros({4}), 3), expected));
}

// w = s / (2 s + s'): a slot's weight counts its expert as often as it is named.
void expect_an_expert_named_twice_counts_twice() {
  const at::Tensor logits = random_tensor({1, 4}, "logits"), score = ops::router_scores(logits)[0];
  const at::Tensor weights = ops::router_weights(logits, at::tensor({1, 1, 3}, at::kLong).unsqueeze(0), 1.0)[0];
  const at::Tensor expected = at::stack({score[1], score[1], score[3]}) / (2 * score[1] + score[3]);
  EXPECT_LE(relative_l2(weights, expected), 1e-14);
}

Operator router_operator() {
  Operator op{
      .name = "Router", .make = router_problem, .narrow = {at::kBFloat16, at::kFloat}, .same_bits_at_levels = true};
  op.answers = {{Property::kTies, Answer(expect_equal_scores_choose_the_first_experts)},
                {Property::kUnused, "a token always has experts"},
                {Property::kDuplicates, Answer(expect_an_expert_named_twice_counts_twice)},
                {Property::kNan, Answer(expect_not_a_number_is_chosen_last)}};
  op.answers.insert({Property::kExtremes, Answer([op] { expect_extremes_are_fine(op, 0, 20.0); })});
  return op;
}

// ---- the sum over slots -------------------------------------------------------------------------------------------

Problem combine_problem(Shape shape, int64_t rows) {
  const ops::Dispatch dispatch = ops::make_dispatch(some_experts(rows, 5), 5);
  return {.inputs = {random_tensor({rows * kChosen, at_shape(shape, 3, 37, 260)}, "rows")},
          .run = {},
          .observe = [=](const Inputs& in) { return Outputs{ops::combine_rows(in[0], dispatch.row_TK)}; }};
}

void expect_a_row_named_twice_counts_twice() {
  const at::Tensor rows = random_tensor({2, 37}, "rows");
  const at::Tensor twice = ops::combine_rows(rows, at::tensor({1, 1}, at::kLong).unsqueeze(0));
  EXPECT_TRUE(at::equal(twice[0], rows[1] + rows[1]));
}

Operator combine_operator() {
  Operator op{.name = "CombineRows", .make = combine_problem, .narrow = {at::kBFloat16}, .same_bits_at_levels = true};
  op.answers = {{Property::kGradients, "a part of Experts, whose node differentiates it"},
                {Property::kTies, kNoChoice},
                {Property::kUnused, "every slot has a row"},
                {Property::kDuplicates, Answer(expect_a_row_named_twice_counts_twice)},
                {Property::kExtremes, kLinear},
                {Property::kNan, kNoPromise}};
  return op;
}

// ---- the head -----------------------------------------------------------------------------------------------------

// h, w, weight
Problem head_problem(Shape shape, int64_t rows) {
  const int64_t vocab = at_shape(shape, 5, 37, 1000), width = at_shape(shape, 3, 13, 64);
  at::Tensor target = (at::arange(rows) * 7).remainder(vocab);
  target.masked_fill_(at::arange(rows).remainder(5).eq(4), ops::kIgnoredTarget);
  const int64_t chunk_bytes = vocab * 4 * 16;
  return {.inputs = {random_leaf({rows, width}, "h"), random_leaf({vocab, width}, "w"),
                     random_tensor({rows}, "weight").abs()},
          .run = [=](const Inputs& in) -> Outputs {
            return {ops::linear_cross_entropy(in[0], in[1], target, in[2], chunk_bytes)};
          },
          .observe = [=](const Inputs& in) -> Outputs {
            const ops::CrossEntropyScores scores = ops::score_cross_entropy(in[0], in[1], target, in[2], chunk_bytes);
            return {at::scalar_tensor(scores.loss_sum, at::kDouble)};
          }};
}

// With equal logits the first token is the most probable one.
void expect_the_first_of_equal_logits_is_correct() {
  const at::Tensor h = at::ones({4, 3}), w = at::ones({37, 3}), target = at::tensor({0, 1, 36, 0}, at::kLong);
  at_every_level(Level::kPortable, [&] { EXPECT_EQ(ops::score_cross_entropy(h, w, target, {}).correct, 2); });
}

void expect_ignored_rows_may_hold_anything() {
  const at::Tensor target = at::tensor(std::vector<int64_t>{3, ops::kIgnoredTarget}), w = random_tensor({37, 13}, "w");
  const at::Tensor h = random_tensor({2, 13}, "h").to(at::kFloat);
  h[1].fill_(NAN);
  at_every_level(Level::kPortable, [&] {
    EXPECT_TRUE(ops::linear_cross_entropy(h, w.to(at::kFloat), target, {}).isfinite().item<bool>());
    EXPECT_TRUE(ops::linear_cross_entropy(h, w.to(at::kFloat), at::zeros({2}, at::kLong), {}).isnan().item<bool>());
  });
}

Operator head_operator() {
  Operator op{.name = "LinearCrossEntropy", .make = head_problem, .narrow = {at::kBFloat16, at::kBFloat16, at::kFloat}};
  op.answers = {{Property::kTies, Answer(expect_the_first_of_equal_logits_is_correct)},
                {Property::kUnused, "LinearCrossEntropy.OnlyIgnoredRows.., in linear_cross_entropy_test"},
                {Property::kDuplicates, kNoIndices},
                {Property::kNan, Answer(expect_ignored_rows_may_hold_anything)}};
  op.answers.insert({Property::kExtremes, Answer([op] { expect_extremes_are_fine(op, 0, 100.0, /*slack=*/10); })});
  return op;
}

}  // namespace

std::vector<Operator> choice_operators() {
  return {index_operator(), router_operator(), combine_operator(), head_operator()};
}

}  // namespace asterism::testing
