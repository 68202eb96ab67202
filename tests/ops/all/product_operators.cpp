#include <gtest/gtest.h>

#include <cmath>

#include "asterism/ops/experts.h"
#include "asterism/ops/linear.h"
#include "tests/ops/all/checks.h"
#include "tests/support/packed_weights.h"
#include "tests/support/precision.h"

namespace asterism::testing {

namespace {

constexpr at::ScalarType kNarrow = at::kBFloat16;
constexpr double kScale = 0.5;  // of low-rank updates
constexpr int64_t kRank = 2;

enum class Weight { kPlain, kLora, kPackedLora };

bool is_packed(Weight weight) {
  return weight == Weight::kPackedLora;
}

void answer_for_products(Operator& op) {
  op.answers.insert({Property::kTies, kNoChoice});
  op.answers.insert({Property::kUnused, kNoIndices});
  op.answers.insert({Property::kDuplicates, kNoIndices});
  op.answers.insert({Property::kExtremes, kLinear});
  op.answers.insert({Property::kNan, Answer([op] { expect_nan_stays_in_its_row(op); })});
}

// x [, w] [, a, b]
Inputs product_inputs(Weight weight, at::IntArrayRef x, at::IntArrayRef w) {
  Inputs in{random_leaf(x, "x")};
  const double size = 1 / std::sqrt(static_cast<double>(w[1]));
  if (!is_packed(weight)) in.push_back(random_tensor(w, "w", size).requires_grad_(true));
  if (weight == Weight::kPlain) return in;
  in.push_back(random_tensor({kRank, w[1]}, "a", size).requires_grad_(true));
  in.push_back(random_leaf({w[0], kRank}, "b"));
  return in;
}

std::optional<ops::LoraPair> update_of(Weight weight, const Inputs& in) {
  if (weight == Weight::kPlain) return std::nullopt;
  return ops::LoraPair{in[in.size() - 2], in[in.size() - 1], kScale};
}

Problem linear_problem(Weight weight, Shape shape, int64_t rows) {
  const int64_t out = at_shape(shape, 4, 37, 256), in_width = at_shape(shape, 3, 133, 192);
  const ops::PackedMatrix packed = random_packed(Packing::kFp8WideScales, {out, in_width}, "packed");
  return {.inputs = product_inputs(weight, {rows, in_width}, {out, in_width}),
          .run = [=](const Inputs& in) -> Outputs {
            const ops::Matrix w = is_packed(weight) ? ops::Matrix(packed) : ops::Matrix(in[1]);
            return {ops::linear(in[0], w, update_of(weight, in), std::nullopt)};
          },
          .observe = {}};
}

Problem grouped_problem(Weight weight, Shape shape, int64_t rows) {
  const int64_t groups = at_shape(shape, 2, 3, 4), out = at_shape(shape, 2, 13, 64), width = at_shape(shape, 3, 37, 96);
  const ops::PackedMatrix packed = random_packed(Packing::kFp8, {groups * out, width}, "packed");
  return {.inputs = product_inputs(weight, {rows, groups, width}, {groups * out, width}),
          .run = [=](const Inputs& in) -> Outputs {
            const ops::Matrix w = is_packed(weight) ? ops::Matrix(packed) : ops::Matrix(in[1]);
            return {ops::grouped_linear(in[0], w, update_of(weight, in))};
          },
          .observe = {}};
}

Operator product_operator(const std::string& name, Weight weight, Problem (*make)(Weight, Shape, int64_t)) {
  Operator op{.name = name,
              .make = [=](Shape shape, int64_t rows) { return make(weight, shape, rows); },
              .narrow = {kNarrow, kNarrow, kNarrow, kNarrow}};
  answer_for_products(op);
  return op;
}

// ---- experts ------------------------------------------------------------------------------------------------------

constexpr int64_t kExperts = 4, kSlots = 3;

// Expert 3 gets nothing, and every second token names one expert twice.
at::Tensor some_choice(int64_t rows) {
  const at::Tensor row = at::arange(rows).unsqueeze(1), slot = at::arange(kSlots).unsqueeze(0);
  return (row + slot * row.add(1).remainder(2)).remainder(3);
}

struct ExpertSizes {
  int64_t dim, width;
  Packing packing;
};

ExpertSizes expert_sizes(Shape shape) {
  return at_shape<ExpertSizes>(shape, {4, 3, Packing::kFp8WideScales}, {37, 13, Packing::kFp8},
                               {96, 64, Packing::kFp4});
}

// x, weight [, gate_up, down] [, a, b of gate_up, a, b of down]
Inputs expert_inputs(Weight weight, const ExpertSizes& s, int64_t rows) {
  Inputs in{random_leaf({rows, s.dim}, "x"), random_leaf({rows, kSlots}, "weight")};
  const auto leaf = [](at::IntArrayRef shape, const std::string& name, int64_t summed) {
    return random_tensor(shape, name, 1 / std::sqrt(static_cast<double>(summed))).requires_grad_(true);
  };
  if (!is_packed(weight)) {
    in.push_back(leaf({kExperts, 2 * s.width, s.dim}, "gate_up", s.dim));
    in.push_back(leaf({kExperts, s.dim, s.width}, "down", s.width));
  }
  if (weight == Weight::kPlain) return in;
  in.push_back(leaf({kExperts * kRank, s.dim}, "gate_up_a", s.dim));
  in.push_back(leaf({2 * s.width, kRank * kExperts}, "gate_up_b", kRank));
  in.push_back(leaf({kExperts * kRank, s.width}, "down_a", s.width));
  in.push_back(leaf({s.dim, kRank * kExperts}, "down_b", kRank));
  return in;
}

Problem experts_problem(Weight weight, Shape shape, int64_t rows, const at::Tensor& choice) {
  const ExpertSizes s = expert_sizes(shape);
  // A clamp decides differently for rounded numbers: finite differences meet it, lower precision does not.
  const double limit = at_shape(shape, 1.0, 100.0, 100.0);
  const ops::Dispatch dispatch = ops::make_dispatch(choice, kExperts);
  const ops::PackedMatrix gate_up = random_packed(s.packing, {kExperts, 2 * s.width, s.dim}, "packed gate_up", 2);
  const ops::PackedMatrix down = random_packed(s.packing, {kExperts, s.dim, s.width}, "packed down");
  return {.inputs = expert_inputs(weight, s, rows),
          .run = [=](const Inputs& in) -> Outputs {
            const size_t n = in.size();
            std::optional<ops::ExpertLora> first, second;
            if (weight != Weight::kPlain) {
              first = ops::ExpertLora{in[n - 4], in[n - 3], kScale};
              second = ops::ExpertLora{in[n - 2], in[n - 1], kScale};
            }
            const ops::Matrix w1 = is_packed(weight) ? ops::Matrix(gate_up) : ops::Matrix(in[2]);
            const ops::Matrix w2 = is_packed(weight) ? ops::Matrix(down) : ops::Matrix(in[3]);
            return {ops::grouped_experts(in[0], in[1], dispatch, w1, w2, limit, first, second)};
          },
          .observe = {}};
}

// Naming expert e twice is naming it once with the sum of the weights.
void expect_weights_of_a_repeated_expert_add(Weight weight) {
  const int64_t rows = 37;
  const at::Tensor once = at::arange(rows).remainder(kExperts).unsqueeze(1);
  Problem twice = experts_problem(weight, Shape::kTail, rows, once.expand({rows, kSlots}).contiguous());
  Problem single = experts_problem(weight, Shape::kTail, rows, once);
  single.inputs[1] = twice.inputs[1].detach().sum(1, true).requires_grad_(true);
  EXPECT_LE(relative_l2(evaluate(twice, at::kDouble).outputs[0], evaluate(single, at::kDouble).outputs[0]), 1e-12);
}

Operator experts_operator(const std::string& name, Weight weight) {
  Operator op{
      .name = name,
      .make = [=](Shape shape, int64_t rows) { return experts_problem(weight, shape, rows, some_choice(rows)); },
      .narrow = {kNarrow, at::kFloat, kNarrow, kNarrow, kNarrow, kNarrow, kNarrow, kNarrow}};
  op.answers.insert({Property::kDuplicates, Answer([=] { expect_weights_of_a_repeated_expert_add(weight); })});
  op.answers.insert({Property::kUnused, "a token always has experts"});
  Operator fp32 = op;
  fp32.narrow.clear();  // beyond the limit the clamp decides differently for rounded numbers
  op.answers.insert({Property::kExtremes, Answer([fp32] { expect_extremes_are_fine(fp32, 0, 1e3); })});
  // A low-rank update is added to a product that was rounded to bf16.
  if (is_packed(weight)) op.bf16_slack = 1.6;
  answer_for_products(op);
  return op;
}

}  // namespace

std::vector<Operator> product_operators() {
  return {product_operator("Linear", Weight::kPlain, linear_problem),
          product_operator("LoraLinear", Weight::kLora, linear_problem),
          product_operator("PackedLinear", Weight::kPackedLora, linear_problem),
          product_operator("GroupedLinear", Weight::kPlain, grouped_problem),
          product_operator("LoraGroupedLinear", Weight::kLora, grouped_problem),
          product_operator("PackedGroupedLinear", Weight::kPackedLora, grouped_problem),
          experts_operator("Experts", Weight::kPlain),
          experts_operator("LoraExperts", Weight::kLora),
          experts_operator("PackedExperts", Weight::kPackedLora)};
}

}  // namespace asterism::testing
