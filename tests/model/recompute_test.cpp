#include "asterism/model/recompute.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"

namespace asterism::model {
namespace {

// y = x * w + sum over x of v, with an auxiliary loss that depends on v alone; `runs` counts how often it is computed.
UnitTask counting_task(const at::Tensor& w, const at::Tensor& v, const at::Tensor& unused, int* runs) {
  UnitTask task;
  task.slots = {w, v, unused};
  task.run = [runs](const at::Tensor& x, const std::vector<at::Tensor>& slots) {
    ++*runs;
    return UnitOutput{x * slots[0] + x.sum() * slots[1], slots[1].square().sum()};
  };
  return task;
}

at::Tensor leaf(const std::string& name) {
  return testing::random_tensor({3}, name).requires_grad_(true);
}

TEST(RunUnit, GradientsEqualThePlainGraphInBothModes) {
  for (const Recompute mode : {Recompute::kBlocks, Recompute::kNone}) {
    const at::Tensor x = leaf("x"), w = leaf("w"), v = leaf("v"), unused = leaf("unused");
    int runs = 0;
    const UnitOutput output = run_unit(counting_task(w, v, unused, &runs), x, mode);
    (output.x_TND.square().sum() + output.auxiliary).backward();
    EXPECT_EQ(runs, mode == Recompute::kBlocks ? 2 : 1);

    const at::Tensor x2 = leaf("x"), w2 = leaf("w"), v2 = leaf("v");
    const at::Tensor y = x2 * w2 + x2.sum() * v2;
    (y.square().sum() + v2.square().sum()).backward();
    EXPECT_TRUE(at::equal(x.grad(), x2.grad()));
    EXPECT_TRUE(at::equal(w.grad(), w2.grad()));
    EXPECT_TRUE(at::allclose(v.grad(), v2.grad(), 1e-14, 0.0));
    EXPECT_FALSE(unused.grad().defined());
  }
}

TEST(RunUnit, FrozenSlotsAndInputsGetNothing) {
  for (const Recompute mode : {Recompute::kBlocks, Recompute::kNone}) {
    const at::Tensor x = testing::random_tensor({3}, "x"), w = testing::random_tensor({3}, "w"), v = leaf("v");
    int runs = 0;
    const UnitOutput output = run_unit(counting_task(w, v, {}, &runs), x, mode);
    output.x_TND.sum().backward();
    EXPECT_FALSE(x.grad().defined());
    EXPECT_FALSE(w.grad().defined());
    EXPECT_TRUE(v.grad().defined());
  }
}

TEST(RunUnit, WithoutRecordingItRunsOnceAndRecordsNothing) {
  const at::Tensor x = leaf("x"), w = leaf("w"), v = leaf("v");
  int runs = 0;
  const at::NoGradGuard no_grad;
  const UnitOutput output = run_unit(counting_task(w, v, {}, &runs), x, Recompute::kBlocks);
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(output.x_TND.requires_grad());
}

}  // namespace
}  // namespace asterism::model
