#include "asterism/ops/linear.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/gradients.h"
#include "tests/support/packed_weights.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using testing::Inputs;
using testing::Outputs;
using testing::random_leaf;
using testing::random_tensor;

constexpr double kScale = 1.75;

Dropout half_dropout(int64_t tokens) {
  return {.probability = 0.5, .key = 11, .token_T = at::arange(tokens, at::kLong) * 3};
}

Outputs run_plain(const Inputs& in) {
  return {ops::linear(in[0], in[1])};
}
Outputs run_lora(const Inputs& in) {
  return {ops::linear(in[0], in[1], LoraPair{in[2], in[3], kScale}, std::nullopt)};
}
Outputs run_lora_dropout(const Inputs& in) {
  return {ops::linear(in[0], in[1], LoraPair{in[2], in[3], kScale}, half_dropout(in[0].size(0)))};
}
Outputs run_grouped(const Inputs& in) {
  return {grouped_linear(in[0], in[1], std::nullopt)};
}
Outputs run_grouped_lora(const Inputs& in) {
  return {grouped_linear(in[0], in[1], LoraPair{in[2], in[3], kScale})};
}

// The grouped product, written as one product per group.
at::Tensor per_group(const at::Tensor& x_TGK, const at::Tensor& w_MK) {
  const int64_t groups = x_TGK.size(1);
  std::vector<at::Tensor> parts;
  for (int64_t g = 0; g < groups; ++g) parts.push_back(x_TGK.select(1, g).matmul(w_MK.chunk(groups, 0)[g].t()));
  return at::cat(parts, 1);
}

TEST(Linear, EqualsTheProduct) {
  const at::Tensor x = random_tensor({5, 7}, "x"), w = random_tensor({4, 7}, "w");
  EXPECT_LT(testing::relative_difference(ops::linear(x, w), x.matmul(w.t())), 1e-14);
}

TEST(Linear, LoraEqualsTheMergedWeight) {
  const at::Tensor x = random_tensor({5, 7}, "x"), w = random_tensor({4, 7}, "w");
  const at::Tensor a = random_tensor({3, 7}, "a"), b = random_tensor({4, 3}, "b");
  const at::Tensor merged = w + kScale * b.matmul(a);
  EXPECT_LT(testing::relative_difference(run_lora({x, w, a, b})[0], x.matmul(merged.t())), 1e-13);
}

TEST(Linear, GradientsMatchFiniteDifferences) {
  for (const int64_t rows : {0, 1, 3}) {
    const at::Tensor x = random_leaf({rows, 6}, "x"), w = random_leaf({5, 6}, "w"), a = random_leaf({2, 6}, "a"),
                     b = random_leaf({5, 2}, "b");
    testing::expect_gradients_match(run_plain, {x, w});
    testing::expect_gradients_match(run_lora, {x, w, a, b});
    testing::expect_gradients_match(run_lora_dropout, {x, w, a, b});
    // As trained: the weight is frozen, and in the first layer the input is a constant.
    testing::expect_gradients_match(run_lora, {x, w.detach(), a, b});
    testing::expect_gradients_match(run_lora_dropout, {x.detach(), w.detach(), a, b});
    testing::expect_gradients_match(run_plain, {x, w.detach()});
    testing::expect_gradients_match(run_plain, {x.detach(), w});
  }
}

TEST(Linear, FrozenWeightGetsNoGradient) {
  const at::Tensor x = random_leaf({3, 6}, "x"), w = random_tensor({5, 6}, "w");
  const at::Tensor a = random_leaf({2, 6}, "a"), b = random_leaf({5, 2}, "b");
  run_lora({x, w, a, b})[0].sum().backward();
  EXPECT_FALSE(w.grad().defined());
  EXPECT_TRUE(a.grad().defined() && b.grad().defined() && x.grad().defined());
}

TEST(Linear, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  const at::Tensor x = random_leaf({6, 96}, "x"), w = random_leaf({80, 96}, "w"), a = random_leaf({8, 96}, "a"),
                   b = random_leaf({80, 8}, "b");
  testing::expect_all_precisions(run_plain, {x, w}, 1);
  testing::expect_all_precisions(run_lora, {x, w, a, b}, 1);
  testing::expect_all_precisions(run_lora_dropout, {x, w, a, b}, 1);
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  EXPECT_THROW(ops::linear(at::ones({2, 3}), at::ones({4, 5})), c10::Error);
  EXPECT_THROW(run_lora({at::ones({2, 3}), at::ones({4, 3}), at::ones({2, 3}), at::ones({2, 4})}), c10::Error);
}

TEST(GroupedLinear, RowsOfAGroupSeeOnlyTheirGroup) {
  const at::Tensor x = random_tensor({4, 3, 5}, "x"), w = random_tensor({6, 5}, "w");
  EXPECT_LT(testing::relative_difference(run_grouped({x, w})[0], per_group(x, w)), 1e-14);
  const at::Tensor strided = x.transpose(0, 1).contiguous().transpose(0, 1);
  EXPECT_LT(testing::relative_difference(run_grouped({strided, w})[0], per_group(x, w)), 1e-14);
}

TEST(GroupedLinear, LoraSharesAAndSplitsBByGroup) {
  const at::Tensor x = random_tensor({4, 3, 5}, "x"), w = random_tensor({6, 5}, "w");
  const at::Tensor a = random_tensor({2, 5}, "a"), b = random_tensor({6, 2}, "b");
  const at::Tensor merged = w + kScale * b.matmul(a);
  EXPECT_LT(testing::relative_difference(run_grouped_lora({x, w, a, b})[0], per_group(x, merged)), 1e-13);
}

TEST(GroupedLinear, GradientsMatchFiniteDifferences) {
  for (const int64_t rows : {0, 1, 3}) {
    const at::Tensor x = random_leaf({rows, 2, 4}, "x"), w = random_leaf({6, 4}, "w"), a = random_leaf({2, 4}, "a"),
                     b = random_leaf({6, 2}, "b");
    testing::expect_gradients_match(run_grouped, {x, w});
    testing::expect_gradients_match(run_grouped_lora, {x, w, a, b});
    testing::expect_gradients_match(run_grouped_lora, {x, w.detach(), a, b});
  }
}

TEST(GroupedLinear, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  const at::Tensor x = random_leaf({6, 2, 96}, "x"), w = random_leaf({64, 96}, "w"), a = random_leaf({8, 96}, "a"),
                   b = random_leaf({64, 8}, "b");
  testing::expect_all_precisions(run_grouped_lora, {x, w, a, b}, 1);
}

// ---- packed weights -------------------------------------------------------------------------------------------------

// The function with a packed weight, or with what it decodes to.
std::function<Outputs(const Inputs&)> with_weight(const Matrix& w, int64_t groups, bool dropped) {
  return [=](const Inputs& in) -> Outputs {
    std::optional<LoraPair> lora;
    if (in.size() > 1) lora = LoraPair{in[1], in[2], kScale};
    if (groups > 1) return {grouped_linear(in[0].view({in[0].size(0), groups, in[0].size(1) / groups}), w, lora)};
    return {ops::linear(in[0], w, lora, dropped ? std::optional(half_dropout(in[0].size(0))) : std::nullopt)};
  };
}

// x, A and B for a weight [150, 64] in `groups` groups.
Inputs packed_inputs(int64_t rows, int64_t groups) {
  return {random_leaf({rows, 64 * groups}, "x"), random_leaf({2, 64}, "a"), random_leaf({150, 2}, "b")};
}

TEST(PackedLinear, ValuesAndGradientsAreThoseOfTheDecodedWeight) {
  for (const testing::Packing packing : testing::kPackings) {
    const PackedMatrix w = testing::random_packed(packing, {150, 64}, "w");  // 150 rows: three groups break a block
    const at::Tensor decoded = w.decode(at::kDouble);
    for (const int64_t groups : {1, 3}) {
      for (const bool dropped : {false, true}) {
        if (groups > 1 && dropped) continue;
        const Inputs in = packed_inputs(5, groups);
        const auto found = testing::outputs_and_gradients(with_weight(w, groups, dropped), in);
        const auto expected = testing::outputs_and_gradients(with_weight(decoded, groups, dropped), in);
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_LT(testing::relative_difference(found[i], expected[i]), 1e-13) << i << " groups " << groups;
        }
      }
    }
  }
}

TEST(PackedLinear, GradientsMatchFiniteDifferences) {
  const PackedMatrix w = testing::random_packed(testing::Packing::kFp4, {150, 64}, "w");
  for (const int64_t rows : {0, 1}) {
    Inputs in = packed_inputs(rows, 1);
    testing::expect_gradients_match(with_weight(w, 1, true), in);
    testing::expect_gradients_match(with_weight(w, 1, false), {in[0]});
    in[0] = in[0].detach();  // as in the first layer
    testing::expect_gradients_match(with_weight(w, 1, false), in);
    testing::expect_gradients_match(with_weight(w, 3, false), packed_inputs(rows, 3));
  }
}

TEST(PackedLinear, SinglePrecisionAndBrainFloatStayCloseToDouble) {
  for (const testing::Packing packing : testing::kPackings) {
    const PackedMatrix w = testing::random_packed(packing, {150, 64}, "w");
    testing::expect_all_precisions(with_weight(w, 1, false), packed_inputs(6, 1), 1);
    testing::expect_all_precisions(with_weight(w, 3, false), packed_inputs(6, 3), 1);
  }
}

TEST(PackedLinear, ShapesThatDoNotFitAreRefused) {
  const PackedMatrix w = testing::random_packed(testing::Packing::kFp8, {150, 64}, "w");
  EXPECT_THROW(ops::linear(at::ones({2, 65}), w), c10::Error);
  EXPECT_THROW(grouped_linear(at::ones({2, 4, 64}), w, std::nullopt), c10::Error);  // 150 rows in four groups
}

// ---- dropout --------------------------------------------------------------------------------------------------------

TEST(Dropout, MaskDependsOnTokenAndChannelNotOnTheBatch) {
  const at::Tensor x = at::ones({64, 30}, at::kDouble);
  const Dropout args = half_dropout(64);
  const at::Tensor whole = dropout(x, args);
  EXPECT_TRUE(at::equal(whole, dropout(x, args)));
  const at::Tensor chosen = at::tensor({40, 3, 17}, at::kLong);
  const Dropout fewer{.probability = 0.5, .key = 11, .token_T = args.token_T.index_select(0, chosen)};
  EXPECT_TRUE(at::equal(dropout(x.narrow(0, 0, 3), fewer), whole.index_select(0, chosen)));
  EXPECT_TRUE(at::equal(dropout(x.narrow(1, 0, 9), args), whole.narrow(1, 0, 9)));
  EXPECT_TRUE(at::equal(dropout(x.to(at::kBFloat16), args).to(at::kDouble), whole));
  Dropout other = args;
  other.key = 12;
  EXPECT_NEAR((dropout(x, other) == whole).to(at::kDouble).mean().item<double>(), 0.5, 0.06);
  EXPECT_NEAR((whole[0] == whole[1]).to(at::kDouble).mean().item<double>(), 0.5, 0.4);
}

TEST(Dropout, KeepsTheExpectation) {
  const at::Tensor x = at::full({1000, 50}, 3.0, at::kDouble);
  for (const double probability : {0.1, 0.75}) {
    const Dropout args{.probability = probability, .key = 5, .token_T = at::arange(1000, at::kLong)};
    const at::Tensor y = dropout(x, args);
    const double dropped = (y == 0).to(at::kDouble).mean().item<double>();
    const double deviation = std::sqrt(probability * (1.0 - probability) / 50000.0);
    EXPECT_NEAR(dropped, probability, 4.0 * deviation);
    EXPECT_NEAR(y.mean().item<double>(), 3.0, 3.0 * 4.0 * deviation / (1.0 - probability));
    EXPECT_DOUBLE_EQ(y.max().item<double>(), 3.0 / (1.0 - probability));
    // Every channel of a generator block has its own bits.
    const at::Tensor by_channel = (y == 0).to(at::kDouble).mean(0);
    EXPECT_LT((by_channel - probability).abs().max().item<double>(), 5.0 * deviation * std::sqrt(50.0));
    EXPECT_FALSE(at::equal(y.select(1, 0), y.select(1, 1)));
  }
}

TEST(Dropout, ActsOnTheLowRankPathOnly) {
  const at::Tensor x = random_tensor({5, 7}, "x"), w = random_tensor({4, 7}, "w");
  const at::Tensor a = random_tensor({3, 7}, "a"), b = random_tensor({4, 3}, "b");
  const at::Tensor dropped = dropout(x, half_dropout(5));
  const at::Tensor expected = x.matmul(w.t()) + kScale * dropped.matmul(a.t()).matmul(b.t());
  EXPECT_LT(testing::relative_difference(run_lora_dropout({x, w, a, b})[0], expected), 1e-13);
  EXPECT_GT(testing::relative_difference(run_lora({x, w, a, b})[0], expected), 0.01);
}

TEST(Dropout, GradientsMatchFiniteDifferences) {
  const auto drop = [](const Inputs& in) -> Outputs { return {dropout(in[0], half_dropout(in[0].size(0)))}; };
  for (const int64_t rows : {0, 1, 4}) testing::expect_gradients_match(drop, {random_leaf({rows, 7}, "x")});
}

TEST(Dropout, ProbabilityZeroIsTheIdentityAndOneIsRefused) {
  const at::Tensor x = random_tensor({2, 3}, "x");
  EXPECT_TRUE(at::equal(dropout(x, {}), x));
  EXPECT_THROW(dropout(x, {.probability = 1.0, .key = 0, .token_T = at::arange(2, at::kLong)}), c10::Error);
  EXPECT_THROW(dropout(x, {.probability = 0.5, .key = 0, .token_T = at::arange(3, at::kLong)}), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
