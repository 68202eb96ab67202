#include <gtest/gtest.h>

#include <cmath>

#include "asterism/ops/adamw.h"
#include "asterism/ops/column_sum.h"
#include "asterism/ops/exact_sum.h"
#include "asterism/ops/hyper_connection.h"
#include "asterism/ops/rms_norm.h"
#include "asterism/ops/rope.h"
#include "asterism/ops/swiglu.h"
#include "tests/ops/all/checks.h"
#include "tests/support/kernel_levels.h"
#include "tests/support/precision.h"

namespace asterism::testing {

namespace {

using ops::cpu::Level;

constexpr at::ScalarType kNarrow = at::kBFloat16, kWideType = at::kFloat;

// What operators on rows without choices and index lists answer; `extremes` and NaN are their own.
void answer_for_rows(Operator& op) {
  op.answers.insert({Property::kTies, kNoChoice});
  op.answers.insert({Property::kUnused, kNoIndices});
  op.answers.insert({Property::kDuplicates, kNoIndices});
  op.answers.insert({Property::kNan, Answer([op] { expect_nan_stays_in_its_row(op); })});
}

Operator rms_norm_operator(const std::string& name, bool weighted) {
  Operator op{.name = name,
              .make =
                  [weighted](Shape shape, int64_t rows) {
                    const int64_t n = at_shape(shape, 5, 133, 320);
                    Inputs in{random_leaf({rows, n}, "x")};
                    if (weighted) in.push_back(random_leaf({n}, "weight"));
                    return Problem{.inputs = in,
                                   .run = [](const Inputs& x) -> Outputs {
                                     return {ops::rms_norm(x[0], x.size() > 1 ? x[1] : at::Tensor(), 1e-6)};
                                   },
                                   .observe = {}};
                  },
              .narrow = {kNarrow, kWideType},
              .same_bits_at_levels = true};
  answer_for_rows(op);
  op.answers.insert({Property::kExtremes, Answer([op] {
                       expect_extremes_are_fine(op, 0, 1e12);
                       expect_extremes_are_fine(op, 0, 1e-12);
                     })});
  return op;
}

Problem swiglu_problem(Shape shape, int64_t rows) {
  const int64_t width = at_shape(shape, 3, 37, 260);
  return {.inputs = {random_leaf({rows, 2 * width}, "gate_up"), random_leaf({rows}, "weight")},
          .run = [](const Inputs& in) -> Outputs { return {ops::swiglu(in[0], in[1], 1.0)}; },
          .observe = {}};
}

// At equality with the limit the gradient passes, beyond it stops.
void expect_the_limit_passes_gradients() {
  const at::Tensor values = at::tensor({1.0F, 1.5F, 0.5F, 0.5F, 0.5F, 0.5F, 1.0F, -1.0F, 1.5F, -1.5F}).view({1, 10});
  const at::Tensor passes = at::tensor({1, 0, 1, 1, 1, 1, 1, 1, 0, 0}, at::kLong);
  at_every_level(Level::kPortable, [&] {
    const ops::SwigluGradients grads = ops::swiglu_gradients(at::ones({1, 5}), values, {}, 1.0, true, false);
    EXPECT_TRUE(at::equal(grads.gate_up[0].ne(0).to(at::kLong), passes)) << grads.gate_up;
  });
}

Operator swiglu_operator() {
  Operator op{.name = "Swiglu", .make = swiglu_problem, .narrow = {kNarrow, kWideType}};
  op.answers = {{Property::kTies, Answer(expect_the_limit_passes_gradients)}};
  answer_for_rows(op);
  op.answers.insert({Property::kExtremes, Answer([op] { expect_extremes_are_fine(op, 0, 1e4); })});
  return op;
}

Operator rope_operator() {
  Operator op{.name = "Rope",
              .make =
                  [](Shape shape, int64_t rows) {
                    const ops::RopeConfig config{.width = at_shape(shape, 2, 6, 64)};
                    const int64_t heads = at_shape(shape, 2, 3, 4), width = at_shape(shape, 3, 17, 128);
                    return Problem{.inputs = {random_leaf({rows, heads, width}, "x")},
                                   .run = [=](const Inputs& in) -> Outputs {
                                     const auto type = in[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
                                     const auto table = ops::make_rope_table(config, at::arange(rows), type);
                                     return {ops::rope(in[0], table), ops::rope(in[0], table, /*inverse=*/true)};
                                   },
                                   .observe = {}};
                  },
              .narrow = {kNarrow},
              .same_bits_at_levels = true};
  answer_for_rows(op);
  op.answers.insert({Property::kExtremes, kLinear});
  return op;
}

// ---- hyper-connections --------------------------------------------------------------------------------------------

const ops::HyperConnectionConfig kStreams{};

Problem site_problem(bool mix, Shape shape, int64_t rows) {
  const int64_t n = at_shape(shape, 2, 3, 4), d = at_shape(shape, 3, 37, 96), m = mix ? n * (n + 2) : n;
  return {.inputs = {random_leaf({rows, n, d}, "x"), random_tensor({m, n * d}, "fn", 0.2).requires_grad_(true),
                     random_leaf({m}, "base"), random_leaf({mix ? 3 : 1}, "scale")},
          .run = [=](const Inputs& in) -> Outputs {
            if (!mix) return {ops::hyper_connection_head(in[0], in[1], in[2], in[3], kStreams)};
            const auto result = ops::hyper_connection_pre(in[0], in[1], in[2], in[3], kStreams);
            return {result.y_TD, result.post_TN, result.comb_TNN};
          },
          .observe = {}};
}

Operator site_operator(const std::string& name, bool mix) {
  Operator op{.name = name,
              .make = [mix](Shape shape, int64_t rows) { return site_problem(mix, shape, rows); },
              .narrow = {kNarrow, kWideType, kWideType, kWideType}};
  answer_for_rows(op);
  // Logits of tens: Sinkhorn far from its limit, and sigmoids that fp32 cannot tell from 1.
  op.answers.insert({Property::kExtremes, Answer([op] {
                       expect_extremes_are_fine(op, 2, 20.0, /*slack=*/10, /*compare_gradients=*/false);
                     })});
  return op;
}

Operator mix_operator() {
  Operator op{.name = "HyperConnectionPost",
              .make =
                  [](Shape shape, int64_t rows) {
                    const int64_t n = at_shape(shape, 2, 3, 4), d = at_shape(shape, 3, 37, 96);
                    return Problem{.inputs = {random_leaf({rows, n, d}, "x"), random_leaf({rows, d}, "out"),
                                              random_leaf({rows, n}, "post"), random_leaf({rows, n, n}, "comb")},
                                   .run = [](const Inputs& in) -> Outputs {
                                     return {ops::hyper_connection_post(in[0], in[1], in[2], in[3])};
                                   },
                                   .observe = {}};
                  },
              .narrow = {kNarrow, kNarrow, kWideType, kWideType},
              .same_bits_at_levels = true};
  answer_for_rows(op);
  op.answers.insert({Property::kExtremes, kLinear});
  return op;
}

// ---- parameters ---------------------------------------------------------------------------------------------------

Operator adamw_operator() {
  Operator op{
      .name = "AdamW",
      .make =
          [](Shape shape, int64_t rows) {
            const int64_t n = at_shape(shape, 3, 37, 700);
            return Problem{
                .inputs = {random_tensor({rows, n}, "param"), random_tensor({rows, n}, "grad"),
                           random_tensor({rows, n}, "mean"), random_tensor({rows, n}, "square").square()},
                .run = {},
                .observe = [](const Inputs& in) -> Outputs {
                  Outputs state{in[0].contiguous().clone(), in[2].contiguous().clone(), in[3].contiguous().clone()};
                  const at::Tensor grad = in[1].contiguous();
                  ops::adamw(state[0], grad, state[1], state[2],
                             {.lr = 0.1, .eps = 1e-3, .weight_decay = 0.3, .grad_scale = 0.7, .step = 3});
                  state.push_back(at::scalar_tensor(ops::sum_of_squares(grad), at::kDouble));
                  return state;
                }};
          },
      .narrow = {},
      .same_bits_at_levels = true};
  op.answers = {{Property::kGradients, kNotDifferentiable},
                {Property::kStrided, "tensors must be contiguous"},
                {Property::kNan, "the loop refuses a norm that is no number before the update"}};
  answer_for_rows(op);
  op.answers.insert({Property::kExtremes, Answer([op] { expect_extremes_are_fine(op, 1, 1e15); })});
  return op;
}

Operator column_sum_operator() {
  Operator op{.name = "ColumnSum",
              .make =
                  [](Shape shape, int64_t rows) {
                    return Problem{.inputs = {random_tensor({rows, at_shape(shape, 3, 37, 260)}, "x")},
                                   .run = {},
                                   .observe = [](const Inputs& in) { return Outputs{ops::column_sum(in[0])}; }};
                  },
              .narrow = {kNarrow},
              .same_bits_at_levels = true};
  op.rows[Shape::kWide] = 2000;
  op.answers = {
      {Property::kGradients, kNotDifferentiable}, {Property::kNan, kNoPromise}, {Property::kExtremes, kLinear}};
  answer_for_rows(op);
  return op;
}

Operator exact_sum_operator() {
  Operator op{.name = "ExactSquareSum",
              .make =
                  [](Shape shape, int64_t rows) {
                    return Problem{.inputs = {random_tensor({rows, at_shape(shape, 3, 37, 260)}, "x")},
                                   .run = {},
                                   .observe = [](const Inputs& in) -> Outputs {
                                     ops::ExactSquareSum sum;
                                     sum.add(in[0].to(at::kFloat).contiguous());
                                     return {at::scalar_tensor(sum.value(), at::kDouble)};
                                   }};
                  },
              .narrow = {},
              .same_bits_at_levels = true};
  const auto equals_fp64 = [op](Shape shape, int64_t rows) {
    const Problem problem = op.make(shape, rows);
    const at::Tensor exact = problem.inputs[0].to(at::kFloat).to(at::kDouble).square().sum();
    EXPECT_LE(relative_l2(evaluate(problem, at::kFloat).observed[0], exact), 1e-14);
  };
  op.answers = {{Property::kFp64, Answer([=] { equals_fp64(Shape::kWide, 130); })},
                {Property::kOneRow, Answer([=] { equals_fp64(Shape::kTail, 1); })},
                {Property::kTails, Answer([=] { equals_fp64(Shape::kTail, 37); })},
                {Property::kGradients, kNotDifferentiable},
                {Property::kStrided, "numbers must be contiguous"},
                {Property::kExtremes, "ExactSquareSum.TheEndsOfTheRange, in exact_sum_test"},
                {Property::kNan, Answer([] {
                   ops::ExactSquareSum sum;
                   sum.add(at::tensor({1.0F, NAN}));
                   EXPECT_TRUE(std::isinf(sum.value()));
                 })}};
  answer_for_rows(op);
  return op;
}

}  // namespace

std::vector<Operator> row_operators() {
  return {rms_norm_operator("RmsNorm", true),
          rms_norm_operator("UnweightedRmsNorm", false),
          swiglu_operator(),
          rope_operator(),
          site_operator("HyperConnectionPre", true),
          site_operator("HyperConnectionHead", false),
          mix_operator(),
          adamw_operator(),
          column_sum_operator(),
          exact_sum_operator()};
}

}  // namespace asterism::testing
