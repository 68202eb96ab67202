#include "asterism/train/run_ranks.h"

#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"
#include "tests/support/tiny_model.h"

namespace asterism::train {
namespace {

TEST(RunRanks, OneRankDecidesAlone) {
  const RunRanks alone(nullptr);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_TRUE(alone.is_first());
  EXPECT_TRUE(alone.any({.stop = true}).stop);
  EXPECT_FALSE(alone.any({.stop = true}).save);
  EXPECT_EQ(alone.of_first("text", "test"), "text");
}

TEST(RunRanks, ARequestToAnyRankIsARequestToAll) {
  dist::run_thread_ranks(3, [](const std::shared_ptr<dist::Transport>& transport) {
    model::Model model = testing::tiny_model(at::kFloat);
    const auto world = std::make_shared<dist::Comm>(transport, "world");
    const auto comms = parallel::make_mesh_comms(world, parallel::make_mesh(3, {}));
    const auto shared = parallel::ShardedModel::share(model, {}, comms, {});
    const RunRanks ranks(shared.get());
    EXPECT_EQ(ranks.is_first(), transport->rank() == 0);
    const RunRanks::Requests requests = ranks.any({.stop = transport->rank() == 2});
    EXPECT_TRUE(requests.stop);
    EXPECT_FALSE(requests.save);
    EXPECT_EQ(ranks.of_first(text("rank ", transport->rank()), "test"), "rank 0");
  });
}

}  // namespace
}  // namespace asterism::train
