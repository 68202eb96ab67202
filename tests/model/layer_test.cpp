#include "asterism/model/layer.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

TEST(AddLoss, TakesUndefinedAsNothing) {
  at::Tensor sum;
  add_loss(sum, {});
  EXPECT_FALSE(sum.defined());
  add_loss(sum, at::tensor(2.0));
  add_loss(sum, {});
  add_loss(sum, at::tensor(3.0));
  EXPECT_EQ(sum.item<double>(), 5.0);
}

TEST(RunLayer, GradientsEqualFiniteDifferencesForEveryKind) {
  // Through mHC, norms, attention, router and experts at once: the input's gradient is the sum of every path.
  for (const int64_t layer : {0, 1, 2, 3}) {
    const Model model = testing::tiny_model(at::kDouble);
    ForwardOptions options;
    options.compute = at::kDouble;
    const auto context = make_stream_context(model.config, testing::tiny_batch(model.config, {7, 3}), options);
    auto decisions = std::make_shared<LayerDecisions>();
    const auto run = [&](const testing::Inputs& inputs) {
      LossSums sums;
      return testing::Outputs{run_layer(model.config, model.weights.layers[layer], model.config.layers[layer], layer,
                                        inputs[0], context, Recompute::kBlocks, decisions, sums)};
    };
    // The choices are fixed by the first run, so that differences see one smooth function.
    testing::expect_gradients_match(run, {testing::random_tensor({10, 4, 32}, "x").requires_grad_(true)}, 2e-6);
  }
}

}  // namespace
}  // namespace asterism::model
