#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/shared_parameters.h"
#include "asterism/train/step.h"
#include "tests/support/tiny_model.h"
#include "tests/train/layout_run.h"

// What went wrong in other trainers on several ranks, with the numbers that were wrong there (docs/known-faults.md).
namespace asterism::train {
namespace {

using testing::LayoutCase;
using testing::LayoutResult;

/// The tiny model, shared, after a backward pass: every piece has a gradient, all of them zero.
SharedParameters share_with_zero_gradients(model::Model& model, const std::shared_ptr<dist::Transport>& transport,
                                           const parallel::MeshRequest& mesh, bool strict) {
  const auto world = std::make_shared<dist::Comm>(transport, "world");
  const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(world->size(), mesh));
  SharedParameters shared = share_parameters(model, full_parameters(model, {}), comms, strict);
  model::forward_loss(model, testing::tiny_batch(model.config, {40}), {}).token_loss.backward();
  shared.model->finish_gradients();
  take_gradients(shared.parameters, *shared.model);
  for (const Parameter& piece : shared.parameters) {
    at::Tensor grad = piece.value.grad();
    if (grad.defined()) grad.zero_();
  }
  return shared;
}

/// Sets the first elements of the first piece of that kind; returns the piece.
at::Tensor set_gradient(const SharedParameters& shared, bool is_expert, const std::vector<float>& values) {
  for (const parallel::TrainedPiece& piece : shared.model->pieces()) {
    const auto count = static_cast<int64_t>(values.size());
    if (piece.is_expert != is_expert || !piece.grad.defined() || piece.grad.numel() < count) continue;
    piece.grad.narrow(0, 0, count).copy_(at::tensor(values));
    return piece.grad;
  }
  ADD_FAILURE() << "no such piece";
  return at::zeros({2});
}

using RankBody = std::function<void(const SharedParameters& shared, int rank)>;

void with_zero_gradients(const parallel::MeshRequest& mesh, const RankBody& body) {
  for (const bool strict : {false, true}) {
    dist::run_thread_ranks(2, [&](const std::shared_ptr<dist::Transport>& transport) {
      model::Model model = testing::tiny_model(at::kFloat);
      body(share_with_zero_gradients(model, transport, mesh, strict), transport->rank());
    });
  }
}

TEST(RankFaults, EachExpertIsCountedOnceInTheNorm) {  // TC2: 7.236068 where norms of ranks were averaged
  for (const int copies : {1, 2}) {
    with_zero_gradients({.expert = 2, .replicate = copies}, [](const SharedParameters& shared, int rank) {
      set_gradient(shared, /*is_expert=*/true, rank == 0 ? std::vector<float>{2, 4} : std::vector<float>{6, 8});
      EXPECT_NEAR(inspect_gradients(*shared.model).norm, 10.954451, 1e-6);
    });
  }
}

TEST(RankFaults, AllRanksClipByOneNormOfExpertsAndDenseWeights) {  // TC2b: each group clipped by its own
  // The dense gradient 84 lies on both ranks; or each has a copy of the model, which counts once.
  for (const int copies : {1, 2}) {
    with_zero_gradients({.expert = 2, .replicate = copies}, [&](const SharedParameters& shared, int rank) {
      const at::Tensor expert =
          set_gradient(shared, true, rank == 0 ? std::vector<float>{3, 4} : std::vector<float>{0, 12});
      const float part = copies == 2 ? 84.0F : rank == 0 ? 0.6F * 84.0F : 0.8F * 84.0F;
      const at::Tensor dense = set_gradient(shared, false, {part});
      const double norm = inspect_gradients(*shared.model).norm;
      EXPECT_NEAR(norm, 85.0, 1e-5);
      EXPECT_NEAR(clip_factor(norm, 8.5), 0.1, 1e-6);
      const auto scaled = [&](const at::Tensor& grad, int64_t element) {
        return grad[element].item<double>() * clip_factor(norm, 8.5);
      };
      EXPECT_NEAR(scaled(expert, 1), rank == 0 ? 0.4 : 1.2, 1e-6);
      EXPECT_NEAR(scaled(dense, 0), 0.1 * part, 1e-5);
    });
  }
}

data::PackedRow row_with(int64_t length, int64_t trained) {
  data::PackedRow row;
  row.lengths = {length};
  for (int64_t t = 0; t < length; ++t) {
    row.ids.push_back((7 * t + length) % 97);
    row.weights.push_back(t >= 1 && t <= trained ? 1.0F : 0.0F);
  }
  return row;
}

double loss_of(const std::vector<data::PackedRow>& rows, const std::shared_ptr<dist::Transport>& transport) {
  model::Model model = testing::tiny_model(at::kDouble);
  StepSettings settings;
  settings.forward.compute = at::kDouble;
  if (!transport) return run_step(model, rows, settings).loss;
  const auto world = std::make_shared<dist::Comm>(transport, "world");
  const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(world->size(), {}));
  const SharedParameters shared = share_parameters(model, full_parameters(model, {}), comms, false);
  return run_step(model, rows, settings, shared.model.get()).loss;
}

TEST(RankFaults, EveryTrainedTokenWeighsTheSame) {  // TC4: the mean of two means, where ranks were averaged
  const data::PackedRow five = row_with(8, 5), one = row_with(8, 1);
  const double mean_of_five = loss_of({five}, nullptr), mean_of_one = loss_of({one}, nullptr);
  ASSERT_GT(std::abs(mean_of_five - mean_of_one), 0.1);
  dist::run_thread_ranks(2, [&](const std::shared_ptr<dist::Transport>& transport) {
    EXPECT_NEAR(loss_of({transport->rank() == 0 ? five : one}, transport), (5.0 * mean_of_five + mean_of_one) / 6.0,
                1e-12);
  });
}

TEST(RankFaults, EveryRowOfAnExpertsAdapterIsTrainedOnEveryRank) {  // TC23: 12.5 % of the rows on 8 ranks
  LayoutCase what;
  what.lora = true;
  what.fresh_pairs = true;
  what.routers = LayoutCase::Routers::kHash;  // which leave no expert out
  what.num_experts = 4;
  what.rows = {{40}, {40}};
  what.steps = 1;
  const LayoutResult expected = testing::run_layout_alone(what);
  for (const parallel::MeshRequest& mesh : {parallel::MeshRequest{1, 8, 1}, {8, 8, 1}, {4, 8, 1}}) {
    const LayoutResult actual = testing::run_layout_threads(what, 8, mesh);
    int checked = 0;
    for (const auto& [name, tensor] : actual.tensors) {
      if (!name.starts_with("weight.")) continue;
      EXPECT_LE((tensor - expected.tensors.at(name)).abs().max().item<double>(), 1e-9) << name;
      if (!name.ends_with("lora_B.weight") || name.find(".indexer.") != std::string::npos) continue;
      EXPECT_TRUE(tensor.ne(0.0).all().item<bool>()) << name;
      checked += name.find(".experts.") != std::string::npos;
    }
    EXPECT_EQ(checked, 2 * 5);  // gate_up and down of every layer
  }
}

TEST(RankFaults, MomentsOfAllExpertsAreKept) {  // W2: half of them, then copied to the other half
  LayoutCase what;
  what.rows = {{30}, {30}};
  what.num_experts = 8;
  const LayoutResult actual = testing::run_layout_threads(what, 2, {2, 2, 1});
  for (int layer = 0; layer < 5; ++layer) {
    const std::string name = "exp_avg.model.layers." + std::to_string(layer) + ".mlp.experts.gate_up_proj";
    ASSERT_TRUE(actual.tensors.contains(name)) << name;
    const at::Tensor& moments = actual.tensors.at(name);
    EXPECT_EQ(moments.size(0), 8);
    EXPECT_FALSE(at::equal(moments.narrow(0, 0, 4), moments.narrow(0, 4, 4))) << name;
  }
}

TEST(RankFaults, FrozenExpertsTakeNoPartInTheNorm) {  // N6: 23.2 in place of 0.4, and growing
  LayoutCase what;
  what.lora = true;
  const LayoutResult actual = testing::run_layout_threads(what, 2, {2, 2, 1});
  double squares = 0.0;
  for (const auto& [name, tensor] : actual.tensors) {
    if (!name.starts_with("gradient.")) continue;
    EXPECT_NE(name.find(".lora_"), std::string::npos) << name;
    squares += tensor.square().sum().item<double>();
  }
  EXPECT_NEAR(actual.losses()[0][3].item<double>(), std::sqrt(squares), 1e-12 * std::sqrt(squares));
}

TEST(RankFaults, ARankWithoutATokenTakesPartInEveryCollective) {  // TC28: ranks waited for each other
  // Every token goes to experts of the first rank, and the second has no row.
  LayoutCase what;
  what.all_to_one_expert = true;
  what.rows = {{12}};
  const LayoutResult expected = testing::run_layout_alone(what);
  const LayoutResult actual = testing::run_layout_threads(what, 2, {2, 2, 1});
  EXPECT_NEAR(actual.losses()[0][0].item<double>(), expected.losses()[0][0].item<double>(), 1e-12);
  for (const auto& [name, tensor] : actual.tensors) {
    if (!name.starts_with("gradient.") || name.find(".mlp.experts.") == std::string::npos) continue;
    EXPECT_TRUE(tensor.narrow(0, 2, 4).eq(0.0).all().item<bool>()) << name;  // those that got none
    EXPECT_GT(tensor.narrow(0, 0, 2).norm().item<double>(), 0.0) << name;
  }
}

}  // namespace
}  // namespace asterism::train
