#include "asterism/parallel/sharded_tensors.h"

#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"
#include "tests/support/gradients.h"

namespace asterism::parallel {
namespace {

using Tensors = std::vector<at::Tensor>;

// Two trained tensors, an absent slot, and frozen ones of several types and odd sizes.
Tensors mixed() {
  return {testing::random_tensor({3, 5}, "a").to(at::kFloat).requires_grad_(true),
          testing::random_tensor({7}, "frozen").to(at::kBFloat16),
          {},
          testing::random_tensor({4, 2, 3}, "b").to(at::kFloat).requires_grad_(true),
          at::arange(11, at::kLong),
          at::arange(5, at::kByte)};
}

void for_ranks(int size, const std::function<void(dist::Comm&)>& body) {
  dist::run_thread_ranks(size, [&](const std::shared_ptr<dist::Transport>& transport) {
    dist::Comm comm(transport, "shard");
    body(comm);
  });
}

TEST(ShardedTensors, GatherGivesBackEveryTensor) {
  for (const int size : {1, 2, 3, 8}) {
    for_ranks(size, [&](dist::Comm& comm) {
      const Tensors whole = mixed();
      ShardedTensors shards("test", whole, comm.rank(), size);
      const Tensors gathered = shards.gather(comm);
      ASSERT_EQ(gathered.size(), whole.size());
      for (size_t i = 0; i < whole.size(); ++i) {
        ASSERT_EQ(gathered[i].defined(), whole[i].defined()) << i;
        if (!whole[i].defined()) continue;
        EXPECT_TRUE(at::equal(gathered[i].detach(), whole[i].detach())) << i;
        EXPECT_EQ(gathered[i].scalar_type(), whole[i].scalar_type());
        EXPECT_EQ(gathered[i].requires_grad(), whole[i].requires_grad()) << i;
      }
    });
  }
}

TEST(ShardedTensors, ARankKeepsItsPartOnly) {
  for_ranks(4, [](dist::Comm& comm) {
    const Tensors large = {at::zeros({1024, 16}).requires_grad_(true), at::zeros({4096}, at::kBFloat16)};
    const ShardedTensors shards("test", large, comm.rank(), 4);
    EXPECT_EQ(shards.resident_bytes(), (65'536 + 8'192) / 4);
  });
}

TEST(ShardedTensors, PiecesCoverEveryTrainedElementOnce) {
  for (const int size : {1, 3, 8}) {
    std::mutex mutex;
    std::map<size_t, at::Tensor> seen;
    for_ranks(size, [&](dist::Comm& comm) {
      const Tensors whole = mixed();
      const ShardedTensors shards("test", whole, comm.rank(), size);
      const std::scoped_lock lock(mutex);
      for (const auto& piece : shards.pieces()) {
        const at::Tensor flat = whole[piece.slot].detach().reshape({-1});
        EXPECT_TRUE(at::equal(piece.value, flat.narrow(0, piece.begin, piece.value.numel())));
        auto& count = seen.try_emplace(piece.slot, at::zeros({flat.numel()})).first->second;
        count.narrow(0, piece.begin, piece.value.numel()).add_(1.0);
      }
    });
    EXPECT_EQ(seen.size(), 2u);
    for (const auto& [slot, count] : seen) EXPECT_TRUE(count.eq(1.0).all().item<bool>()) << slot;
  }
}

TEST(ShardedTensors, GradientsAreSumsOverRanksAndContributions) {
  for (const int size : {1, 2, 5}) {
    for_ranks(size, [&](dist::Comm& comm) {
      const Tensors whole = mixed();
      ShardedTensors shards("test", whole, comm.rank(), size);
      const auto gradient = [&](int rank, int contribution) {
        return Tensors{at::full({3, 5}, rank + 1.0F), {}, {}, at::full({4, 2, 3}, 10.0F * contribution), {}, {}};
      };
      for (int pass = 0; pass < 2; ++pass) {
        shards.add_gradients(comm, {gradient(comm.rank(), 1), gradient(comm.rank(), 2)});
      }
      for (const auto& piece : shards.pieces()) {
        const float expected = piece.slot == 0 ? 2.0F * size * (size + 1) : 2.0F * 30.0F * size;
        EXPECT_TRUE(piece.grad.eq(expected).all().item<bool>()) << piece.slot;
      }
      EXPECT_TRUE(shards.touched()[0]);
      shards.drop_gradients();
      EXPECT_FALSE(shards.grad().defined());
      EXPECT_FALSE(shards.touched()[0]);
    });
  }
}

TEST(ShardedTensors, ASlotWithoutAGradientStaysUntouched) {
  for_ranks(2, [](dist::Comm& comm) {
    ShardedTensors shards("test", mixed(), comm.rank(), 2);
    Tensors grads(6);
    grads[3] = at::ones({4, 2, 3});
    shards.add_gradients(comm, {grads});
    EXPECT_FALSE(shards.touched()[0]);
    EXPECT_TRUE(shards.touched()[3]);
  });
}

TEST(ShardedTensors, CopiesOfTheRanksHoldTheSameSums) {
  // Four ranks: two copies of a tensor cut in two.
  for_ranks(4, [](dist::Comm& world) {
    const Tensors whole = {at::arange(32, at::kFloat).requires_grad_(true)};
    ShardedTensors shards("test", whole, world.rank() % 2, 2);
    shards.add_gradients(world, {{at::full({32}, static_cast<float>(1 << world.rank()))}}, /*copies=*/2);
    EXPECT_TRUE(shards.grad().eq(15.0F).all().item<bool>());
  });
}

TEST(ShardedTensors, TrainedTensorsThatAreNoMastersAreRefused) {
  EXPECT_THROW(ShardedTensors("test", {at::zeros({4}, at::kBFloat16).requires_grad_(true)}, 0, 1), c10::Error);
}

}  // namespace
}  // namespace asterism::parallel
