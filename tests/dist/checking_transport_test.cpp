#include "asterism/dist/checking_transport.h"

#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"

namespace asterism::dist {
namespace {

using Body = std::function<void(Transport&)>;

void gather(Transport& transport, const std::string& what, int64_t count = 2) {
  transport.all_gather(at::empty({transport.size() * count}), at::zeros({count}), what)->wait();
}

// What every rank is told when rank 1 does something else than the others.
std::vector<std::string> told(const Body& others, const Body& rank_1) {
  std::vector<std::string> errors(3);
  EXPECT_THROW(run_thread_ranks(3,
                                [&](const std::shared_ptr<Transport>& inner) {
                                  const auto transport = make_checking_transport(inner);
                                  gather(*transport, "first");
                                  try {
                                    (transport->rank() == 1 ? rank_1 : others)(*transport);
                                  } catch (const RunError& error) {
                                    errors[transport->rank()] = error.what();
                                    throw;
                                  }
                                }),
               RunError);
  return errors;
}

void expect_told(const std::vector<std::string>& errors, const std::vector<std::string>& parts) {
  for (const std::string& error : errors) {
    for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
  }
}

TEST(CheckingTransport, NamesTheRankWithAnotherName) {
  expect_told(told([](Transport& t) { gather(t, "layer 3"); }, [](Transport& t) { gather(t, "layer 4"); }),
              {"movement 2: rank 1 issued all_gather 'layer 4'", "ranks 0 and 2 issued all_gather 'layer 3'"});
}

TEST(CheckingTransport, NamesTheRankWithAnotherSize) {
  expect_told(told([](Transport& t) { gather(t, "layer 3", 2); }, [](Transport& t) { gather(t, "layer 3", 3); }),
              {"movement 2: rank 1 issued all_gather 'layer 3' of 12 bytes (float)", "of 8 bytes (float)"});
}

TEST(CheckingTransport, NamesTheRankThatLeftACallOut) {
  const auto both = [](Transport& t) {
    gather(t, "layer 3");
    gather(t, "layer 4");
  };
  expect_told(told(both, [](Transport& t) { gather(t, "layer 4"); }),
              {"movement 2: rank 1 issued all_gather 'layer 4'"});
}

TEST(CheckingTransport, NamesAnotherKindTypeAndRoot) {
  const auto broadcast = [](int root, at::ScalarType type) {
    return [root, type](Transport& t) {
      t.broadcast(at::zeros({8 / static_cast<int64_t>(at::elementSize(type))}, type), root, "x")->wait();
    };
  };
  expect_told(told([](Transport& t) { gather(t, "x"); }, broadcast(0, at::kFloat)),
              {"rank 1 issued broadcast 'x'", "ranks 0 and 2 issued all_gather 'x'"});
  expect_told(told(broadcast(0, at::kFloat), broadcast(0, at::kLong)), {"(float)", "(long"});
  expect_told(told(broadcast(0, at::kFloat), broadcast(2, at::kFloat)), {"from rank 2", "from rank 0"});
  expect_told(told([](Transport& t) { t.subgroup({t.rank()}, "a"); }, [](Transport& t) { t.subgroup({1}, "b"); }),
              {"rank 1 issued a new group 'b'"});
}

TEST(CheckingTransport, NamesTheRowsThatDoNotAgree) {
  const auto exchange = [](const std::vector<int64_t>& output, const std::vector<int64_t>& input) {
    return [output, input](Transport& t) {
      t.all_to_all(at::empty({6, 2}), at::zeros({6, 2}), output, input, "tokens")->wait();
    };
  };
  expect_told(told(exchange({2, 2, 2}, {2, 2, 2}), exchange({2, 2, 2}, {1, 2, 3})),
              {"movement 2: all_to_all 'tokens': rank 1 sends 1 rows to rank 0, which expects 2"});
}

TEST(CheckingTransport, LetsThroughWhatAgrees) {
  run_thread_ranks(2, [](const std::shared_ptr<Transport>& inner) {
    const auto transport = make_checking_transport(inner);
    EXPECT_EQ(transport->rank(), inner->rank());
    EXPECT_EQ(transport->size(), 2);
    const auto group = transport->subgroup({0, 1}, "pair");
    const at::Tensor all = at::empty({2}), data = at::full({3}, transport->rank() + 1.0F);
    group->all_gather(all, at::full({1}, group->rank() + 1.0F), "gather")->wait();
    EXPECT_EQ(all.sum().item<float>(), 3.0F);
    transport->broadcast(data, 1, "broadcast")->wait();
    EXPECT_EQ(data.sum().item<float>(), 6.0F);
    const at::Tensor out = at::empty({1, 2});
    const bool first = transport->rank() == 0;
    // Rank 0 sends a row to rank 1, rank 1 one to itself: uneven, with nothing between some.
    const at::Tensor received = first ? at::empty({0, 2}) : at::empty({2, 2});
    transport
        ->all_to_all(received, at::full({1, 2}, static_cast<float>(transport->rank())),
                     first ? std::vector<int64_t>{0, 0} : std::vector<int64_t>{1, 1}, {0, 1}, "tokens")
        ->wait();
    EXPECT_EQ(received.sum().item<float>(), first ? 0.0F : 2.0F);
  });
}

}  // namespace
}  // namespace asterism::dist
