#include "asterism/ops/key_rows.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/gradients.h"

namespace asterism::ops {
namespace {

using asterism::testing::random_tensor;
using asterism::testing::relative_difference;

constexpr int64_t kQueries = 3, kHeads = 2, kKeys = 4, kRowWidth = 5;

TEST(KeyRows, ListsOfAWholeRangeEqualTheRange) {
  const at::Tensor rows_CP = random_tensor({9, kRowWidth}, "rows");
  const at::Tensor index_BK = at::arange(2, 2 + kKeys, at::kLong).expand({kQueries, kKeys});
  const KeyRows range(rows_CP, 2, 2 + kKeys, at::kDouble);
  const KeyRows lists(rows_CP, index_BK, 2, at::kDouble);
  const at::Tensor x_MP = random_tensor({kQueries * kHeads, kRowWidth}, "x");
  // Columns of a wider matrix, as the attention uses them.
  const at::Tensor wide = at::zeros({kQueries * kHeads, kKeys + 3}, at::kDouble);
  const at::Tensor by_range = wide.slice(1, 1, 1 + kKeys),
                   by_lists = at::empty({kQueries * kHeads, kKeys}, at::kDouble);
  range.scores(x_MP, by_range);
  lists.scores(x_MP, by_lists);
  EXPECT_LT(relative_difference(by_range, at::matmul(x_MP, rows_CP.slice(0, 2, 6).t())), 1e-14);
  EXPECT_LT(relative_difference(by_lists, by_range), 1e-14);
  EXPECT_EQ(wide.select(1, 0).abs().sum().item<double>(), 0.0);

  const at::Tensor sum_range = at::ones({kQueries * kHeads, kRowWidth}, at::kDouble), sum_lists = sum_range.clone();
  range.add_weighted_sum(by_range, sum_range);
  lists.add_weighted_sum(by_range, sum_lists);
  EXPECT_LT(relative_difference(sum_range, 1 + at::matmul(by_range, rows_CP.slice(0, 2, 6))), 1e-14);
  EXPECT_LT(relative_difference(sum_lists, sum_range), 1e-14);

  const RowGradient grad_range{.first = 1, .rows_NP = at::zeros({7, kRowWidth}, at::kDouble)};
  const RowGradient grad_lists{.first = 1, .rows_NP = at::zeros({7, kRowWidth}, at::kDouble)};
  const std::array terms{WeightedRows{by_range, x_MP}, WeightedRows{by_range * 2, x_MP}};
  range.add_gradient(terms, grad_range);
  lists.add_gradient(terms, grad_lists);
  EXPECT_LT(relative_difference(grad_range.rows_NP.slice(0, 1, 5), 3 * at::matmul(by_range.t(), x_MP)), 1e-14);
  EXPECT_LT(relative_difference(grad_lists.rows_NP, grad_range.rows_NP), 1e-14);
}

TEST(KeyRows, UnusedPlacesGetNoGradientAndRepeatedRowsAddUp) {
  const at::Tensor rows_CP = random_tensor({4, kRowWidth}, "rows");
  const at::Tensor index_BK = at::tensor({3, -1, 3, 1}, at::kLong).view({2, 2});
  const KeyRows lists(rows_CP, index_BK, 1, at::kDouble);
  const RowGradient grad{.first = 0, .rows_NP = at::zeros({4, kRowWidth}, at::kDouble)};
  const at::Tensor ones = at::ones({2, 2}, at::kDouble), x = at::ones({2, kRowWidth}, at::kDouble);
  lists.add_gradient(std::array{WeightedRows{ones, x}}, grad);
  EXPECT_TRUE(at::equal(grad.rows_NP.select(1, 0), at::tensor({0., 1., 0., 2.}, at::kDouble)));
}

TEST(KeyRows, NarrowRowsAreWidened) {
  const at::Tensor rows_CP = random_tensor({4, kRowWidth}, "rows").to(at::kBFloat16);
  const at::Tensor x_MP = random_tensor({2, kRowWidth}, "x").to(at::kFloat), score = at::empty({2, 4}, at::kFloat);
  KeyRows(rows_CP, 0, 4, at::kFloat).scores(x_MP, score);
  EXPECT_LT(relative_difference(score, at::matmul(x_MP, rows_CP.to(at::kFloat).t())), 1e-6);
}

TEST(RowGradients, PartsOverlapAndGapsAreZero) {
  const std::vector<RowGradient> parts{{.first = 0, .rows_NP = at::ones({2, 1}, at::kDouble)},
                                       {},
                                       {.first = 1, .rows_NP = at::full({2, 1}, 10.0, at::kDouble)}};
  const at::Tensor total = sum_in_order(parts, 5, 1, at::kDouble);
  EXPECT_TRUE(at::equal(total.view(-1), at::tensor({1., 11., 10., 0., 0.}, at::kDouble)));
}

TEST(RowGradients, FewerPartsWhereBuffersAreLarge) {
  EXPECT_EQ(num_gradient_parts(0, 128), 64);
  EXPECT_EQ(num_gradient_parts(1 << 20, 512), 4);
  EXPECT_EQ(num_gradient_parts(1 << 15, 128), 16);
}

}  // namespace
}  // namespace asterism::ops
