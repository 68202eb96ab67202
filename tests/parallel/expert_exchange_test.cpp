#include "asterism/parallel/expert_exchange.h"

#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"
#include "asterism/ops/experts.h"
#include "tests/support/gradients.h"

namespace asterism::parallel {
namespace {

constexpr int kExperts = 4, kWidth = 6, kHidden = 8, kSlots = 2;
constexpr double kLimit = 1.0;

struct Tokens {
  at::Tensor y_TD, weight_TK, expert_TK;
};

Tokens some_tokens(int rank, int64_t count) {
  Tokens tokens;
  tokens.y_TD = testing::random_leaf({count, kHidden}, "y" + std::to_string(rank));
  tokens.weight_TK = testing::random_leaf({count, kSlots}, "w" + std::to_string(rank));
  return tokens;
}

Tokens tokens_of(int rank) {
  const int64_t count = rank == 2 ? 0 : 5 + rank;
  Tokens tokens = some_tokens(rank, count);
  // The same expert twice in a token is allowed: hash routers do that.
  tokens.expert_TK = (at::arange(count * kSlots, at::kLong).view({count, kSlots}) * 3 + rank).remainder(kExperts);
  if (count > 0) tokens.expert_TK[0].fill_(1);
  return tokens;
}

ExpertWeights trained_experts() {
  ExpertWeights experts;
  experts.gate_up.weight = testing::random_leaf({kExperts, 2 * kWidth, kHidden}, "up");
  experts.down.weight = testing::random_leaf({kExperts, kHidden, kWidth}, "down");
  return experts;
}

// Loss that weighs every output differently.
at::Tensor loss_of(const at::Tensor& out_TD, int rank) {
  return (out_TD * testing::random_tensor(out_TD.sizes(), "loss" + std::to_string(rank))).sum();
}

ExpertExchange::Groups groups_of(dist::Comm& world, int expert_ranks) {
  const Mesh mesh = make_mesh(world.size(), {.expert = expert_ranks});
  return {world.subgroup(mesh.expert_group(world.rank()), "expert"),
          world.subgroup(mesh.expert_shard_group(world.rank()), "expert_shard")};
}

// On four ranks, results and gradients are those of all ranks' tokens on one rank with all experts.
void check_against_one_rank(const std::vector<int>& expert_ranks,
                            const std::function<Tokens(int rank)>& tokens_of_rank) {
  for (const int in_group : expert_ranks) {
    dist::run_thread_ranks(4, [&](const std::shared_ptr<dist::Transport>& transport) {
      const int rank = transport->rank();
      dist::Comm world(transport, "world");
      ExpertExchange exchange("experts", trained_experts(), kExperts, groups_of(world, in_group), /*strict=*/false);
      const Tokens own = tokens_of_rank(rank);
      model::LayerDecisions decisions;
      decisions.expert_TK = own.expert_TK;
      const at::Tensor out = exchange.run({0, own.y_TD, own.weight_TK, kLimit}, decisions);
      loss_of(out, rank).backward();

      const ExpertWeights all = trained_experts();
      for (int r = 0; r < 4; ++r) {
        const Tokens tokens = tokens_of_rank(r);
        const ops::Dispatch dispatch = ops::make_dispatch(tokens.expert_TK, kExperts);
        const at::Tensor expected = ops::grouped_experts(tokens.y_TD, tokens.weight_TK, dispatch, all.gate_up.weight,
                                                         all.down.weight, kLimit, {}, {});
        loss_of(expected, r).backward();
        if (r != rank) continue;
        EXPECT_TRUE(at::allclose(out, expected, 1e-12, 1e-12));
        EXPECT_TRUE(at::allclose(own.y_TD.grad(), tokens.y_TD.grad(), 1e-12, 1e-12));
        EXPECT_TRUE(at::allclose(own.weight_TK.grad(), tokens.weight_TK.grad(), 1e-12, 1e-12));
      }
      const ExpertRange range = exchange.range();
      const at::Tensor up = all.gate_up.weight.plain.grad().narrow(0, range.first, range.count);
      const at::Tensor down = all.down.weight.plain.grad().narrow(0, range.first, range.count);
      const size_t gate_up_slot = exchange.tensors().trained().front();
      EXPECT_FALSE(exchange.tensors().pieces().empty());
      for (const ShardedTensors::Piece& piece : exchange.tensors().pieces()) {
        const at::Tensor whole = (piece.slot == gate_up_slot ? up : down).reshape({-1});
        EXPECT_TRUE(at::allclose(piece.grad, whole.narrow(0, piece.begin, piece.value.numel()), 1e-12, 1e-12));
      }
    });
  }
}

TEST(ExpertExchange, EqualsAllExpertsOnOneRank) {
  check_against_one_rank({1, 2, 4}, tokens_of);
}

TEST(ExpertExchange, ExpertsWhoseTokensAllComeFromOneGroupHangNobody) {
  // Two groups of two ranks. Tokens of ranks 0 and 1 go to all experts, those of ranks 2 and 3 only to the experts of
  // rank 2: rank 3 gets none, and shares its experts' gradients with rank 1, which does.
  check_against_one_rank({2}, [](int rank) {
    Tokens tokens = some_tokens(rank, 4);
    tokens.expert_TK = at::arange(4 * kSlots, at::kLong).view({4, kSlots}).remainder(rank < 2 ? kExperts : 2);
    return tokens;
  });
}

TEST(ExpertExchange, TheGradientOfAnExpertIsThatOfAllTokensOnce) {  // TC3: 2.0 and 4.0 in place of 1.0
  // Each rank has one token, x = 1, for expert 0, which makes down * x of it: the mean over tokens has the gradient 1.
  for (const int ranks : {1, 2, 4}) {
    for (const int expert_ranks : {1, 2, 4}) {
      if (expert_ranks > ranks) continue;
      dist::run_thread_ranks(ranks, [&](const std::shared_ptr<dist::Transport>& transport) {
        dist::Comm world(transport, "world");
        ExpertWeights experts;
        const double gate = 1.0, up = 1.0 + std::exp(-1.0);  // silu(gate) * up = 1
        experts.gate_up.weight = at::tensor({gate, up}, at::kDouble).view({1, 2, 1}).repeat({kExperts, 1, 1});
        experts.down.weight = at::full({kExperts, 1, 1}, 2.0, at::kDouble).requires_grad_(true);
        ExpertExchange exchange("experts", experts, kExperts, groups_of(world, expert_ranks), false);
        model::LayerDecisions decisions;
        decisions.expert_TK = at::zeros({1, 1}, at::kLong);
        const at::Tensor x = at::ones({1, 1}, at::kDouble).requires_grad_(true), one = at::ones({1, 1}, at::kDouble);
        const at::Tensor out = exchange.run({0, x, one.clone().requires_grad_(true), /*limit=*/10.0}, decisions);
        EXPECT_NEAR(out.item<double>(), 2.0, 1e-12);
        (out.sum() / ranks).backward();
        for (const ShardedTensors::Piece& piece : exchange.tensors().pieces()) {
          if (exchange.range().first > 0 || piece.begin > 0) continue;
          EXPECT_NEAR(piece.grad[0].item<double>(), 1.0, 1e-12) << ranks << " ranks, expert " << expert_ranks;
        }
      });
    }
  }
}

TEST(ExpertExchange, ReplaysTheWayUnderRecomputation) {
  dist::run_thread_ranks(2, [](const std::shared_ptr<dist::Transport>& transport) {
    dist::Comm world(transport, "world");
    const ExpertExchange::Groups groups{world.subgroup({0, 1}, "expert"),
                                        world.subgroup({transport->rank()}, "expert_shard")};
    ExpertExchange exchange("experts", trained_experts(), kExperts, groups, false);
    const Tokens own = tokens_of(transport->rank());
    model::LayerDecisions decisions;
    decisions.expert_TK = own.expert_TK;
    const at::NoGradGuard no_grad;
    const at::Tensor first = exchange.run({0, own.y_TD, own.weight_TK, kLimit}, decisions);
    int meanwhile = 0;
    const at::Tensor again = exchange.run({0, own.y_TD, own.weight_TK, kLimit,
                                           [&] {
                                             ++meanwhile;
                                             const auto& traffic = groups.expert->traffic();
                                             EXPECT_EQ(traffic.at("all_to_all experts: tokens").calls, 2);
                                             EXPECT_EQ(traffic.at("all_to_all experts: results").calls, 1);
                                           }},
                                          decisions);
    EXPECT_EQ(meanwhile, 1);
    EXPECT_TRUE(at::equal(first, again));
    EXPECT_EQ(groups.expert->traffic().at("all_to_all experts: counts").calls, 1);
    EXPECT_EQ(groups.expert->traffic().at("all_to_all experts: tokens").calls, 2);
  });
}

}  // namespace
}  // namespace asterism::parallel
