#include "asterism/ops/matmul.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"

namespace asterism::ops {
namespace {

using testing::random_tensor;
using testing::relative_difference;

TEST(Matmul, TheThreeOrdersAgreeWithTheDefinition) {
  const at::Tensor x = random_tensor({5, 7}, "x"), w = random_tensor({4, 7}, "w");
  at::Tensor want = at::zeros({5, 4}, at::kDouble);
  for (int64_t m = 0; m < 5; ++m) {
    for (int64_t n = 0; n < 4; ++n) want[m][n] = (x[m] * w[n]).sum();
  }
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const double allowed = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : 2e-2;
    const at::Tensor a = x.to(type), b = w.to(type);
    EXPECT_LE(relative_difference(matmul_nt(a, b), want), allowed) << type;
    EXPECT_LE(relative_difference(matmul_nn(a, b.t().contiguous()), want), allowed) << type;
    EXPECT_LE(relative_difference(matmul_tn(a.t().contiguous(), b.t().contiguous()), want), allowed) << type;
    EXPECT_LE(relative_difference(matmul_nt(a.t().contiguous().t(), b), want), allowed) << "strided, " << type;
    EXPECT_EQ(matmul_nt(a, b).scalar_type(), type);
  }
}

// A library may have fast code for dense operands only, and fall back to another order of sums, a hundred times slower,
// for slices. The order shows in the bits.
TEST(Matmul, SlicesGiveTheBitsOfTheirCopies) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = random_tensor({96, 600}, "x").to(type), w = random_tensor({80, 600}, "w").to(type);
    const at::Tensor x_MK = x.narrow(1, 64, 512), w_NK = w.narrow(1, 64, 512);
    EXPECT_TRUE(at::equal(matmul_nt(x_MK, w_NK), matmul_nt(x_MK.contiguous(), w_NK.contiguous()))) << type;
    const at::Tensor wide = random_tensor({512, 160}, "wide").to(type), w_KN = wide.narrow(1, 40, 80);
    EXPECT_TRUE(at::equal(matmul_nn(x_MK, w_KN), matmul_nn(x_MK.contiguous(), w_KN.contiguous()))) << type;
    const at::Tensor x_KM = wide.narrow(1, 60, 96);
    EXPECT_TRUE(at::equal(matmul_tn(x_KM, w_KN), matmul_tn(x_KM.contiguous(), w_KN.contiguous()))) << type;
    const at::Tensor thin = random_tensor({1024, 512}, "thin").to(type), other_NK = thin.slice(0, 0, 1024, 2);
    EXPECT_TRUE(at::equal(matmul_nt(x_MK, other_NK), matmul_nt(x_MK, other_NK.contiguous()))) << type;
  }
}

TEST(Matmul, MixedTypesTakeTheTypeOfTheFirstOperandOrTheOneAskedFor) {
  const at::Tensor x = random_tensor({3, 6}, "x").to(at::kBFloat16), w = random_tensor({2, 6}, "w").to(at::kFloat);
  EXPECT_EQ(matmul_nt(x, w).scalar_type(), at::kBFloat16);
  const at::Tensor wide = matmul_nt(x, w, at::kFloat);
  EXPECT_EQ(wide.scalar_type(), at::kFloat);
  EXPECT_LE(relative_difference(wide, at::matmul(x.to(at::kDouble), w.to(at::kDouble).t())), 1e-6);
}

TEST(Matmul, EmptyOperandsGiveEmptyOrZeroResults) {
  EXPECT_EQ(matmul_nt(at::empty({0, 3}), at::empty({2, 3})).sizes(), (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(at::equal(matmul_tn(at::empty({0, 3}), at::empty({0, 2})), at::zeros({3, 2})));
}

TEST(Matmul, BatchedAndAccumulatedProducts) {
  const at::Tensor a = random_tensor({3, 4, 5}, "a"), b = random_tensor({3, 5, 2}, "b");
  const at::Tensor got = matmul_batched(a, b);
  for (int64_t i = 0; i < 3; ++i) EXPECT_LE(relative_difference(got[i], matmul_nn(a[i], b[i])), 1e-14);
  at::Tensor sum = at::ones({4, 2}, at::kDouble);
  matmul_accumulate(sum, a[0], b[0]);
  EXPECT_LE(relative_difference(sum, 1 + got[0]), 1e-14);
  for (const int64_t k : {3, 100}) {
    const at::Tensor left = random_tensor({6, k}, "left").to(at::kFloat), right = random_tensor({k, 4}, "right");
    at::Tensor total = at::ones({6, 4});
    matmul_accumulate(total, left, right.to(at::kFloat));
    EXPECT_LE(relative_difference(total, 1 + left.to(at::kDouble).matmul(right)), 1e-6) << k;
  }
}

TEST(Matmul, ShapesThatDoNotFitAreRefused) {
  EXPECT_THROW(matmul_nt(at::ones({2, 3}), at::ones({2, 4})), c10::Error);
  EXPECT_THROW(matmul_nn(at::ones({2, 3}), at::ones({2})), c10::Error);
  EXPECT_THROW(matmul_batched(at::ones({2, 2, 3}), at::ones({3, 3, 2})), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
