#include "asterism/dist/thread_transport.h"

#include <gtest/gtest.h>

#include <thread>

#include "asterism/dist/comm.h"

namespace asterism::dist {
namespace {

using namespace std::chrono_literals;

TEST(ThreadTransport, TheFirstErrorOfARankIsTheOneThatIsThrown) {
  try {
    run_thread_ranks(3, [](const std::shared_ptr<Transport>& transport) {
      Comm comm(transport, "world");
      if (transport->rank() == 2) run_error("the disk is full");
      comm.barrier("test");
    });
    FAIL() << "expected an error";
  } catch (const PeerError&) {
    FAIL() << "a consequence was thrown in place of the cause";
  } catch (const RunError& error) {
    EXPECT_STREQ(error.what(), "the disk is full");
  }
}

TEST(ThreadTransport, OthersLearnTheReason) {
  std::string seen;
  EXPECT_THROW(run_thread_ranks(2,
                                [&](const std::shared_ptr<Transport>& transport) {
                                  Comm comm(transport, "world");
                                  if (transport->rank() == 1) run_error("the disk is full");
                                  try {
                                    comm.barrier("test");
                                  } catch (const PeerError& error) {
                                    seen = error.what();
                                    throw;
                                  }
                                }),
               RunError);
  EXPECT_NE(seen.find("rank 1: the disk is full"), std::string::npos) << seen;
}

TEST(ThreadTransport, AnAbortEndsLaterMovementsToo) {
  const auto transports = make_thread_transports(2);
  transports[0]->abort("stopped by a test");
  EXPECT_THROW(transports[1]->broadcast(at::zeros({1}), 0, "test"), PeerError);
}

TEST(ThreadTransport, ASilentRankEndsTheWaitWithItsNumber) {
  const auto transports = make_thread_transports(3, 50ms);
  const auto work = transports[0]->all_gather(at::empty({3}), at::zeros({1}), "test");
  transports[2]->all_gather(at::empty({3}), at::zeros({1}), "test");
  try {
    work->wait();
    FAIL() << "expected a PeerError";
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("still missing: rank 1"), std::string::npos) << error.what();
  }
}

TEST(ThreadTransport, RowsThatDoNotAgreeAreAnErrorOfTheRun) {
  EXPECT_THROW(
      run_thread_ranks(
          2,
          [](const std::shared_ptr<Transport>& transport) {
            // Both send one row to the other, rank 1 expects two.
            const bool second = transport->rank() == 1;
            const std::vector<int64_t> expected = second ? std::vector<int64_t>{2, 0} : std::vector<int64_t>{0, 1};
            const std::vector<int64_t> sent = second ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0, 1};
            transport->all_to_all(at::empty({second ? 2 : 1, 4}), at::zeros({1, 4}), expected, sent, "test")->wait();
          }),
      c10::Error);
}

TEST(ThreadTransport, GroupsOfOneNameAreMadeAnewEachTime) {
  run_thread_ranks(2, [](const std::shared_ptr<Transport>& transport) {
    for (int i = 0; i < 3; ++i) {
      const auto group = transport->subgroup({0, 1}, "pair");
      const at::Tensor all = at::empty({2});
      group->all_gather(all, at::full({1}, static_cast<float>(i)), "test")->wait();
      EXPECT_EQ(all.sum().item<float>(), 2.0F * i);
    }
  });
}

}  // namespace
}  // namespace asterism::dist
