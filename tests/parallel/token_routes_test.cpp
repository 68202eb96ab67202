#include "asterism/parallel/token_routes.h"

#include <gtest/gtest.h>

#include "asterism/core/rng.h"
#include "asterism/dist/thread_transport.h"
#include "asterism/parallel/mesh.h"

namespace asterism::parallel {
namespace {

constexpr int kRoutedExperts = 5, kRoutedSlots = 2;

at::Tensor choices_of(int rank) {
  const int64_t tokens = rank == 1 ? 0 : 6 + rank;  // a rank without any token
  std::vector<int64_t> experts;
  const RandomStream stream(static_cast<uint64_t>(rank), "routes");
  for (int64_t i = 0; i < tokens * kRoutedSlots; ++i)
    experts.push_back(static_cast<int64_t>(stream.below(kRoutedExperts, i)));
  return at::tensor(experts, at::kLong).view({tokens, kRoutedSlots});
}

TEST(TokenRoutes, EveryRowArrivesAtTheRankOfItsExpertInTheOrderOfItsSender) {
  for (const int size : {1, 2, 3, 7}) {
    for (const bool per_sender : {false, true}) {
      dist::run_thread_ranks(size, [&](const std::shared_ptr<dist::Transport>& transport) {
        dist::Comm comm(transport, "expert");
        const at::Tensor mine = choices_of(comm.rank());
        const TokenRoutes routes = make_token_routes(mine, kRoutedExperts, per_sender, comm, "test");
        // Each row carries its sender, slot and expert.
        const at::Tensor slot_R = routes.outgoing.slot_R;
        const at::Tensor cargo =
            at::stack({at::full_like(slot_R, comm.rank()), slot_R, mine.reshape({-1}).index_select(0, slot_R)}, 1);
        int64_t received_rows = 0;
        for (const int64_t rows : routes.receive_rows) received_rows += rows;
        const at::Tensor received = at::empty({received_rows, 3}, at::kLong);
        comm.all_to_all(received, cargo.contiguous(), routes.receive_rows, routes.send_rows, "cargo");

        const ExpertRange range = expert_range(kRoutedExperts, comm.rank(), size);
        int64_t seen = 0;
        EXPECT_EQ(routes.calls.size(), range.count == 0 ? 0u : per_sender ? static_cast<size_t>(size) : 1u);
        for (const TokenRoutes::Call& call : routes.calls) {
          EXPECT_EQ(call.first_row, seen);
          for (int e = 0; e < range.count; ++e) {
            int64_t last = -1;
            for (int64_t r = call.dispatch.offsets[e]; r < call.dispatch.offsets[e + 1]; ++r) {
              const at::Tensor row = received[call.first_row + call.dispatch.token_R[r].item<int64_t>()];
              EXPECT_EQ(row[2].item<int64_t>(), range.first + e);
              const int64_t order = row[0].item<int64_t>() * 1000 + row[1].item<int64_t>();
              EXPECT_GT(order, last);
              last = order;
            }
          }
          seen += call.rows;
        }
        EXPECT_EQ(seen, received_rows);
      });
    }
  }
}

TEST(TokenRoutes, TakesOneExchangeOfCounts) {
  dist::run_thread_ranks(3, [](const std::shared_ptr<dist::Transport>& transport) {
    dist::Comm comm(transport, "expert");
    make_token_routes(choices_of(comm.rank()), kRoutedExperts, false, comm, "layer 0 experts");
    ASSERT_EQ(comm.traffic().size(), 1u);
    EXPECT_EQ(comm.traffic().begin()->first, "all_to_all layer 0 experts: counts");
    EXPECT_EQ(comm.traffic().begin()->second.calls, 1);
  });
}

}  // namespace
}  // namespace asterism::parallel
