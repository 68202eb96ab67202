#include "asterism/ops/sparse_attention_reference.h"

#include <gtest/gtest.h>

#include "tests/support/attention_problem.h"
#include "tests/support/gradients.h"
#include "tests/support/precision.h"

namespace asterism::ops {
namespace {

using asterism::testing::attention_gradients;
using asterism::testing::AttentionCase;
using asterism::testing::AttentionKind;
using asterism::testing::AttentionProblem;
using asterism::testing::literal_attention;
using asterism::testing::make_attention;
using asterism::testing::relative_difference;
using asterism::testing::relative_l2;

TEST(ReferenceAttention, IsUsedForEveryTypeWhileSomebodyWantsIt) {
  const AttentionProblem s = make_attention({{30, 50}, 8, 4, AttentionKind::kSelected, 3}, 4, 16);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const bool before = ReferenceAttention::is_wanted();
    {
      const ReferenceAttention wish, again;
      EXPECT_TRUE(ReferenceAttention::is_wanted());
      const AttentionProblem narrow = s.as(type), wide = narrow.as(at::kDouble);
      const double loose = type == at::kFloat ? 1.0 : 500.0;
      EXPECT_LT(relative_l2(narrow.run().o_THP, wide.run().o_THP), 1e-5 * loose);
      const auto narrow_grad = attention_gradients(narrow), wide_grad = attention_gradients(wide);
      for (size_t i = 0; i < 4; ++i) EXPECT_LT(relative_l2(narrow_grad[i], wide_grad[i]), 2e-5 * loose) << i;
    }
    EXPECT_EQ(ReferenceAttention::is_wanted(), before);
  }
}

TEST(ReferenceAttention, ARepeatedIndexCountsOnce) {
  const AttentionCase c{{40}, 4, 2, AttentionKind::kSelected, 3};  // lists for the later queries
  const AttentionProblem once = make_attention(c, 2, 3);
  AttentionProblem twice = once;
  twice.selected = at::cat({once.selected, once.selected.flip(1)}, 1);
  EXPECT_LT(relative_difference(twice.run().o_THP, once.run().o_THP), 1e-12);
  EXPECT_LT(relative_difference(twice.run().lse_TH, literal_attention(c, twice).lse_TH), 1e-12);
  const auto of_once = attention_gradients(once), of_twice = attention_gradients(twice);
  for (size_t i = 0; i < of_once.size(); ++i) EXPECT_LT(relative_difference(of_twice[i], of_once[i]), 1e-12) << i;
}

}  // namespace
}  // namespace asterism::ops
