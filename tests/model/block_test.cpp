#include "asterism/model/block.h"

#include <gtest/gtest.h>

#include "tests/support/gradients.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

// These halves run once: nothing is kept for a second run.
ops::KeptResults keep_nothing(/*wanted=*/false);

TEST(MoeHalf, CountsEveryTokenOnceAlsoWhenItIsRunAgain) {
  const Model model = testing::tiny_model(at::kFloat);
  const auto context = make_stream_context(model.config, testing::tiny_batch(model.config, {12}), {});
  const at::Tensor x = testing::random_tensor({12, 4, 32}, "x").to(at::kFloat);
  LayerDecisions decisions;
  const UnitOutput first =
      moe_half(model.weights.layers[2].moe, model.config.layers[2], 2, x, *context, decisions, keep_nothing);
  const at::Tensor chosen = decisions.expert_TK.clone();
  const UnitOutput second =
      moe_half(model.weights.layers[2].moe, model.config.layers[2], 2, x, *context, decisions, keep_nothing);
  EXPECT_TRUE(at::equal(first.x_TND, second.x_TND));
  EXPECT_TRUE(at::equal(decisions.expert_TK, chosen));
  EXPECT_EQ(decisions.dispatch->offsets.back(), 12 * model.config.experts_per_token);
}

TEST(MoeHalf, HashLayersRouteByTokenIdAlone) {
  const Model model = testing::tiny_model(at::kFloat);
  const TokenBatch batch = testing::tiny_batch(model.config, {6});
  const auto context = make_stream_context(model.config, batch, {});
  for (const char* name : {"a", "b"}) {
    LayerDecisions decisions;
    moe_half(model.weights.layers[0].moe, model.config.layers[0], 0,
             testing::random_tensor({6, 4, 32}, name).to(at::kFloat), *context, decisions, keep_nothing);
    EXPECT_TRUE(at::equal(decisions.expert_TK, model.weights.layers[0].moe.moe.tid2eid.index_select(0, batch.id_T)));
  }
}

TEST(MoeHalf, SharedExpertIsClampedLikeTheRoutedOnes) {
  // With the routed experts silenced the output is the shared expert's; a huge input must saturate at the limit.
  Model model = testing::tiny_model(at::kFloat);
  MoeHalf half = model.weights.layers[2].moe;
  half.moe.down.weight = at::zeros_like(half.moe.down.weight.plain);
  const auto context = make_stream_context(model.config, testing::tiny_batch(model.config, {1}), {});
  std::map<std::string, at::Tensor> seen;
  ForwardOptions options;
  options.probe = [&](std::string_view name, const at::Tensor& value) { seen[std::string(name)] = value; };
  const auto probed = make_stream_context(model.config, testing::tiny_batch(model.config, {1}), options);
  half.norm = half.norm * 1e6f;
  LayerDecisions decisions;
  moe_half(half, model.config.layers[2], 2, at::ones({1, 4, 32}), *probed, decisions, keep_nothing);
  const double limit = model.config.swiglu_limit;
  const double largest = limit / (1.0 + std::exp(-limit)) * limit;
  const double bound = half.moe.shared_down.weight.plain.abs().sum(1).max().item<double>() * largest;
  EXPECT_LE(seen["layer.2.mlp_out"].abs().max().item<double>(), bound * 1.0001);
}

TEST(AttentionHalf, DenseStageAttendsToAllVisibleEntries) {
  const Model model = testing::tiny_model(at::kDouble);
  ForwardOptions sparse, dense;
  sparse.compute = dense.compute = at::kDouble;
  dense.dense_attention = true;
  const TokenBatch batch = testing::tiny_batch(model.config, {32});
  const at::Tensor x = testing::random_tensor({32, 4, 32}, "x");
  LayerDecisions chosen, none;
  const LayerSpec& spec = model.config.layers[1];
  const at::Tensor a = attention_half(model.weights.layers[1].attention, spec, 1, x,
                                      *make_stream_context(model.config, batch, sparse), chosen, keep_nothing)
                           .x_TND;
  const at::Tensor b = attention_half(model.weights.layers[1].attention, spec, 1, x,
                                      *make_stream_context(model.config, batch, dense), none, keep_nothing)
                           .x_TND;
  EXPECT_FALSE(none.selected_TK.defined());
  // index_topk = 3: with at most 3 visible entries (t < 15) the choice is everything; later it is not.
  EXPECT_LE(testing::relative_difference(a.slice(0, 0, 15), b.slice(0, 0, 15)), 1e-12);
  EXPECT_GT(testing::relative_difference(a.slice(0, 20), b.slice(0, 20)), 1e-6);
}

}  // namespace
}  // namespace asterism::model
