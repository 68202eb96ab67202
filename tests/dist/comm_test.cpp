#include "asterism/dist/comm.h"

#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"

namespace asterism::dist {
namespace {

void run_ranks(int size, const std::function<void(Comm&)>& body,
               std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  run_thread_ranks(
      size,
      [&](const std::shared_ptr<Transport>& transport) {
        Comm comm(transport, "world");
        body(comm);
      },
      timeout);
}

at::Tensor values_of(int rank, int64_t count, at::ScalarType type = at::kFloat) {
  return (at::arange(count, at::kDouble) * 0.37 + rank * 1.1).sin().to(type);
}

// The sum in the order of ranks, in the type of the values: what a collective must give bit for bit.
at::Tensor ordered_sum(int size, int64_t count, at::ScalarType type) {
  at::Tensor sum = values_of(0, count, type);
  for (int r = 1; r < size; ++r) sum = sum + values_of(r, count, type);
  return sum;
}

TEST(Comm, AllReduceAddsInTheOrderOfRanks) {
  for (const int size : {1, 2, 3, 5}) {
    for (const int64_t count : {0, 1, 7, 1000, 50'001}) {  // the last takes the way in two halves
      for (const auto type : {at::kFloat, at::kDouble}) {
        run_ranks(size, [&](Comm& comm) {
          const at::Tensor x = values_of(comm.rank(), count, type);
          comm.all_reduce(x, Reduction::kSum, "test");
          EXPECT_TRUE(at::equal(x, ordered_sum(size, count, type))) << size << " ranks, " << count << " values";
        });
      }
    }
  }
}

TEST(Comm, AllReduceOfTheLargestKeepsNan) {
  run_ranks(3, [](Comm& comm) {
    const at::Tensor x = at::tensor({1.0 * comm.rank(), -1.0 * comm.rank(), comm.rank() == 1 ? NAN : 0.0});
    comm.all_reduce(x, Reduction::kMax, "test");
    EXPECT_EQ(x[0].item<double>(), 2.0);
    EXPECT_EQ(x[1].item<double>(), 0.0);
    EXPECT_TRUE(std::isnan(x[2].item<double>()));
  });
}

TEST(Comm, AllReduceCountsInIntegers) {
  run_ranks(4, [](Comm& comm) {
    const at::Tensor x = at::full({3}, (int64_t{1} << 53) + comm.rank(), at::kLong);
    comm.all_reduce(x, Reduction::kSum, "test");
    EXPECT_EQ(x[2].item<int64_t>(), (int64_t{1} << 55) + 6);
  });
}

TEST(Comm, AllGatherMovesAnyType) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kLong, at::kBool, at::kFloat8_e4m3fn}) {
    run_ranks(3, [&](Comm& comm) {
      const at::Tensor mine = at::full({2, 5}, comm.rank() + 1, at::kFloat).to(type);
      const at::Tensor all = at::empty({6, 5}, mine.options());
      comm.all_gather(all, mine, "test");
      for (int r = 0; r < 3; ++r) {
        EXPECT_EQ(all.narrow(0, 2 * r, 2).to(at::kFloat).min().item<float>(), type == at::kBool ? 1.0F : r + 1.0F);
      }
    });
  }
}

TEST(Comm, AllGatherReadsTheRanksOwnPartInPlace) {
  run_ranks(3, [](Comm& comm) {
    const at::Tensor all = at::zeros({3, 4});
    all[comm.rank()].fill_(comm.rank() + 1);
    comm.all_gather(all, all[comm.rank()], "test");
    EXPECT_TRUE(at::equal(all.select(1, 0), at::tensor({1.0F, 2.0F, 3.0F})));
  });
}

TEST(Comm, ReduceScatterAddsOnTopOfTheShardInTheOrderOfRanks) {
  for (const int size : {1, 2, 4}) {
    run_ranks(size, [&](Comm& comm) {
      const int64_t part = 11;
      const at::Tensor shard = values_of(17, part);
      at::Tensor expected = shard.clone();
      for (int r = 0; r < size; ++r)
        expected = expected + values_of(r, size * part).narrow(0, comm.rank() * part, part);
      comm.reduce_scatter_add(shard, values_of(comm.rank(), size * part), "test");
      EXPECT_TRUE(at::equal(shard, expected));
    });
  }
}

TEST(Comm, ReduceScatterAddsTheSummandsOfARankOneAfterTheOther) {
  run_ranks(2, [](Comm& comm) {
    // 1e8 + 1 - 1e8 is 0 in fp32 in this order and 1 in another.
    const at::Tensor shard = at::zeros({1});
    const float big = comm.rank() == 0 ? 1e8F : -1e8F, small = comm.rank() == 0 ? 1.0F : 0.0F;
    comm.reduce_scatter_add(shard, at::tensor({big, small, big, small}), "test");
    EXPECT_EQ(shard.item<float>(), ((1e8F + 1.0F) - 1e8F) + 0.0F);
  });
}

// Rank r sends (r + 2 q) mod 4 rows to rank q: uneven, with zeros.
int64_t rows_between(int from, int to) {
  return (from + 2 * to) % 4;
}

TEST(Comm, AllToAllMovesUnevenRows) {
  const int size = 3;
  run_ranks(size, [&](Comm& comm) {
    std::vector<int64_t> send, receive;
    std::vector<at::Tensor> outgoing;
    for (int q = 0; q < size; ++q) {
      send.push_back(rows_between(comm.rank(), q));
      receive.push_back(rows_between(q, comm.rank()));
      outgoing.push_back(at::full({send.back(), 2, 3}, 10 * comm.rank() + q, at::kBFloat16));
    }
    int64_t rows = 0;
    for (const int64_t count : receive) rows += count;
    const at::Tensor output = at::empty({rows, 2, 3}, at::kBFloat16);
    comm.all_to_all(output, at::cat(outgoing), receive, send, "test");
    int64_t offset = 0;
    for (int q = 0; q < size; ++q) {
      const at::Tensor part = output.narrow(0, offset, receive[q]);
      EXPECT_TRUE(part.eq(10 * q + comm.rank()).all().item<bool>());
      offset += receive[q];
    }
  });
}

TEST(Comm, AllToAllWithoutAnyRows) {
  run_ranks(2, [](Comm& comm) {
    const at::Tensor none = at::empty({0, 8});
    comm.all_to_all(at::empty({0, 8}), none, {0, 0}, {0, 0}, "test");
  });
}

TEST(Comm, CollectivesMayBeWaitedForInAnyOrder) {
  run_ranks(3, [](Comm& comm) {
    const at::Tensor a = at::empty({3}), b = at::empty({3}), mine_a = at::full({1}, comm.rank() + 1.0F),
                     mine_b = at::full({1}, comm.rank() + 11.0F);
    Pending first = comm.start_all_gather(a, mine_a, "a");
    Pending second = comm.start_all_gather(b, mine_b, "b");
    if (comm.rank() == 1) {
      first.wait();
      second.wait();
    } else {
      second.wait();
      first.wait();
    }
    EXPECT_EQ(a.sum().item<float>(), 6.0F);
    EXPECT_EQ(b.sum().item<float>(), 36.0F);
  });
}

TEST(Comm, BroadcastAndTexts) {
  run_ranks(3, [](Comm& comm) {
    const at::Tensor x = at::full({4}, comm.rank(), at::kLong);
    comm.broadcast(x, 2, "test");
    EXPECT_EQ(x.sum().item<int64_t>(), 8);
    const auto texts = comm.all_gather_text(std::string(comm.rank(), 'x'), "test");
    EXPECT_EQ(texts, (std::vector<std::string>{"", "x", "xx"}));
    comm.barrier("test");
  });
}

TEST(Comm, SubgroupsHaveTheirOwnRanks) {
  run_ranks(4, [](Comm& comm) {
    // Pairs (0, 1) and (2, 3), then (0, 2) and (1, 3): the mesh's two kinds of groups.
    const int base = comm.rank() / 2 * 2, column = comm.rank() % 2;
    const auto rows = comm.subgroup({base, base + 1}, "shard");
    const auto columns = comm.subgroup({column, column + 2}, "replicate");
    EXPECT_EQ(rows->rank(), comm.rank() % 2);
    EXPECT_EQ(columns->rank(), comm.rank() / 2);
    const at::Tensor x = at::full({1}, 1.0F + comm.rank());
    rows->all_reduce(x, Reduction::kSum, "test");
    EXPECT_EQ(x.item<float>(), comm.rank() < 2 ? 3.0F : 7.0F);
    columns->all_reduce(x, Reduction::kSum, "test");
    EXPECT_EQ(x.item<float>(), 10.0F);
  });
}

TEST(Comm, TensorsOfAWrongKindAreRefusedBeforeAnythingMoves) {
  run_ranks(1, [](Comm& comm) {
    EXPECT_THROW(comm.all_reduce(at::zeros({3}, at::kBFloat16), Reduction::kSum, "test"), c10::Error);
    EXPECT_THROW(comm.all_gather(at::zeros({3}), at::zeros({2}), "test"), c10::Error);
    EXPECT_THROW(comm.all_reduce(at::zeros({4, 4}).t().narrow(0, 0, 2), Reduction::kSum, "test"), c10::Error);
    EXPECT_THROW(comm.all_to_all(at::zeros({2, 3}), at::zeros({2, 4}), {2}, {2}, "test"), c10::Error);
    EXPECT_THROW(comm.reduce_scatter_add(at::zeros({2}), at::zeros({3}), "test"), c10::Error);
    EXPECT_TRUE(comm.traffic().empty());
  });
}

TEST(Comm, CountsCallsAndBytes) {
  run_ranks(4, [](Comm& comm) {
    comm.all_gather(at::empty({40}), at::zeros({10}), "weights");
    comm.all_gather(at::empty({40}), at::zeros({10}), "weights");
    comm.reduce_scatter_add(at::zeros({5}), at::zeros({20}), "gradients");
    const Traffic& gather = comm.traffic().at("all_gather weights");
    EXPECT_EQ(gather.calls, 2);
    EXPECT_EQ(gather.bytes_sent, 2 * 3 * 40);
    EXPECT_EQ(comm.traffic().at("reduce_scatter gradients").bytes_sent, 3 * 20);
  });
}

TEST(Comm, ErrorsOfPeersSayWhereAndInWhichCollective) {
  try {
    run_ranks(
        3,
        [](Comm& comm) {
          comm.set_step(12);
          if (comm.rank() == 1) return;  // leaves without a word
          try {
            comm.barrier("layer 3 experts: dispatch");
          } catch (const PeerError& error) {
            const std::string message = error.what();
            EXPECT_NE(message.find("step 12, barrier 'layer 3 experts: dispatch'"), std::string::npos) << message;
            EXPECT_NE(message.find("still missing: rank 1"), std::string::npos) << message;
            throw;
          }
        },
        std::chrono::milliseconds(100));
    FAIL() << "expected a PeerError";
  } catch (const PeerError&) {
  }
}

}  // namespace
}  // namespace asterism::dist
