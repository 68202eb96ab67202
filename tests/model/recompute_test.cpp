#include "asterism/model/recompute.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"

namespace asterism::model {
namespace {

// y = x * w + sum over x of v, with an auxiliary loss that depends on v alone; `runs` counts how often it is computed.
UnitTask counting_task(const at::Tensor& w, const at::Tensor& v, const at::Tensor& unused, int* runs) {
  UnitTask task;
  task.slots = {w, v, unused};
  task.run = [runs](const at::Tensor& x, const std::vector<at::Tensor>& slots, ops::KeptResults&) {
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

TEST(RunUnit, SelectiveRunsAgainWithoutComputingWhatWasKept) {
  const at::Tensor x = leaf("x"), w = leaf("w");
  int runs = 0, computed = 0;
  UnitTask task;
  task.slots = {w};
  task.run = [&](const at::Tensor& input, const std::vector<at::Tensor>& slots, ops::KeptResults& kept) {
    ++runs;
    const ops::Kept costly = ops::kept_or(kept.at("costly"), [&] {
      ++computed;
      return ops::Kept{slots[0].detach().exp()};
    });
    return UnitOutput{input * slots[0] + costly[0], {}};
  };
  for (const Recompute mode : {Recompute::kBlocks, Recompute::kSelective}) {
    runs = computed = 0;
    run_unit(task, x, mode).x_TND.sum().backward();
    EXPECT_EQ(runs, 2);
    EXPECT_EQ(computed, mode == Recompute::kSelective ? 1 : 2);
  }
  EXPECT_TRUE(at::equal(w.grad(), 2 * x.detach()));
  runs = computed = 0;
  {
    const at::NoGradGuard no_grad;  // nothing will run again: nothing is kept
    run_unit(task, x, Recompute::kSelective);
  }
  EXPECT_EQ(computed, 1);
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
