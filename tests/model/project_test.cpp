#include "asterism/model/project.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

struct Fixture {
  Model model = testing::tiny_model(at::kDouble);
  TokenBatch batch = testing::tiny_batch(model.config, {8});
  Projection projection;
  at::Tensor x = testing::random_tensor({8, 32}, "x");

  Fixture() {
    projection.weight = at::zeros({5, 32}, at::kDouble);
    projection.lora = ops::LoraPair{testing::random_tensor({2, 32}, "a"), testing::random_tensor({5, 2}, "b"), 1.0};
    projection.lora_dropout = 0.5;
  }
  at::Tensor run(uint64_t seed, uint64_t step, int64_t layer, ProjectionId id, bool training = true) const {
    ForwardOptions options;
    options.compute = at::kDouble;
    options.seed = seed;
    options.step = step;
    options.training = training;
    return project(x, projection, layer, id, *make_stream_context(model.config, batch, options));
  }
};

TEST(Project, DropoutIsNamedBySeedStepLayerAndTarget) {
  const Fixture setup;
  const at::Tensor base = setup.run(1, 2, 3, ProjectionId::kQueryA);
  EXPECT_TRUE(at::equal(base, setup.run(1, 2, 3, ProjectionId::kQueryA)));
  EXPECT_FALSE(at::equal(base, setup.run(9, 2, 3, ProjectionId::kQueryA)));
  EXPECT_FALSE(at::equal(base, setup.run(1, 9, 3, ProjectionId::kQueryA)));
  EXPECT_FALSE(at::equal(base, setup.run(1, 2, 9, ProjectionId::kQueryA)));
  EXPECT_FALSE(at::equal(base, setup.run(1, 2, 3, ProjectionId::kQueryB)));
}

TEST(Project, DropoutIsOffOutsideTraining) {
  const Fixture setup;
  const at::Tensor exact = setup.x.matmul(setup.projection.lora->a_RK.t()).matmul(setup.projection.lora->b_NR.t());
  EXPECT_LE(testing::relative_difference(setup.run(1, 2, 3, ProjectionId::kQueryA, false), exact), 1e-12);
  EXPECT_GT(testing::relative_difference(setup.run(1, 2, 3, ProjectionId::kQueryA), exact), 1e-3);
}

}  // namespace
}  // namespace asterism::model
