#include "asterism/train/shared_parameters.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "asterism/dist/thread_transport.h"
#include "asterism/train/optimizer.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

parallel::MeshComms comms_of(const std::shared_ptr<dist::Transport>& transport) {
  const auto world = std::make_shared<dist::Comm>(transport, "world");
  return parallel::make_mesh_comms(world, parallel::make_mesh(transport->size(), {}));
}

TEST(SharedParameters, PiecesKeepWhetherTheyDecay) {
  dist::run_thread_ranks(3, [](const std::shared_ptr<dist::Transport>& transport) {
    model::Model whole_model = testing::tiny_model(at::kFloat), model = testing::tiny_model(at::kFloat);
    std::map<std::string, bool> decays;
    for (const Parameter& parameter : full_parameters(whole_model, {})) decays[parameter.name] = parameter.decays;
    const SharedParameters shared = share_parameters(model, full_parameters(model, {}), comms_of(transport), false);
    EXPECT_FALSE(shared.parameters.empty());
    for (const Parameter& piece : shared.parameters) {
      EXPECT_EQ(piece.value.dim(), 1);
      EXPECT_EQ(piece.decays, decays.at(piece.name)) << piece.name;
    }
    EXPECT_EQ(model.placement, shared.model);
  });
}

TEST(SharedParameters, TheOptimizerSeesTheGradientsOfTheStep) {
  dist::run_thread_ranks(2, [](const std::shared_ptr<dist::Transport>& transport) {
    model::Model model = testing::tiny_model(at::kFloat);
    const SharedParameters shared = share_parameters(model, full_parameters(model, {}), comms_of(transport), false);
    const model::TokenBatch batch = testing::tiny_batch(model.config, {20});
    model::forward_loss(model, batch, {}).token_loss.backward();
    shared.model->finish_gradients();
    take_gradients(shared.parameters, *shared.model);
    const GradientReport report = inspect_gradients(*shared.model);
    EXPECT_GT(report.norm, 0.0);
    AdamW optimizer(shared.parameters, {});
    const at::Tensor before = shared.parameters[0].value.clone();
    optimizer.step(1e-2, 1.0);
    EXPECT_FALSE(at::equal(shared.parameters[0].value, before));
    shared.model->drop_gradients();
    for (const Parameter& piece : shared.parameters) EXPECT_FALSE(piece.value.grad().defined());
  });
}

TEST(SharedParameters, AGradientThatIsNotFiniteIsNamedOnEveryRank) {
  dist::run_thread_ranks(2, [](const std::shared_ptr<dist::Transport>& transport) {
    for (const bool strict : {false, true}) {
      model::Model model = testing::tiny_model(at::kFloat);
      const SharedParameters shared = share_parameters(model, full_parameters(model, {}), comms_of(transport), strict);
      model::forward_loss(model, testing::tiny_batch(model.config, {20}), {}).token_loss.backward();
      shared.model->finish_gradients();
      const auto pieces = shared.model->pieces();
      if (transport->rank() == 1) pieces.back().grad.fill_(NAN);
      const GradientReport report = inspect_gradients(*shared.model);
      EXPECT_FALSE(std::isfinite(report.norm));
      EXPECT_EQ(report.non_finite, "lm_head.weight");
    }
  });
}

TEST(SharedParameters, MtpCannotBeShared) {
  dist::run_thread_ranks(1, [](const std::shared_ptr<dist::Transport>& transport) {
    model::Model model = testing::tiny_model(at::kFloat);
    EXPECT_THROW(share_parameters(model, full_parameters(model, {.mtp = true}), comms_of(transport), false),
                 InputError);
  });
}

}  // namespace
}  // namespace asterism::train
