#include "asterism/parallel/slice_movement.h"

#include <gtest/gtest.h>

#include "asterism/dist/thread_transport.h"

namespace asterism::parallel {
namespace {

constexpr int kMovers = 3;

struct Slice {
  int64_t begin = 0, count = 0;
};

// Of one tensor; the second list takes more than one stretch of 8 MiB, and begins within the slice of another rank.
const std::vector<std::vector<Slice>> kSlices = {
    {{0, 10}, {10, 0}, {5, 20}}, {{3, 7}, {0, 5'000'000}, {4'000'000, 3'000'001}}, {{0, 0}, {0, 0}, {0, 0}}};

// Element i is i.
class Numbers : public model::SliceReader {
 public:
  void read(const std::string& name, int64_t begin, const at::Tensor& out) override {
    EXPECT_EQ(name, "numbers");
    at::Tensor(out).copy_(at::arange(begin, begin + out.numel(), out.options()));
  }
};

void run_movers(const std::function<void(dist::Comm&)>& body) {
  dist::run_thread_ranks(kMovers, [&](const std::shared_ptr<dist::Transport>& transport) {
    dist::Comm comm(transport, "world");
    body(comm);
  });
}

TEST(SliceMovement, EveryRankGetsWhatItAskedForFromRankZero) {
  for (const at::ScalarType type : {at::kInt, at::kDouble}) {
    run_movers([&](dist::Comm& comm) {
      Numbers numbers;
      StreamedSlices slices(comm, comm.rank() == 0 ? &numbers : nullptr);
      for (const std::vector<Slice>& wanted : kSlices) {
        const auto [begin, count] = wanted[comm.rank()];
        const at::Tensor out = at::full({count}, -1, type);
        slices.read("numbers", begin, out);
        EXPECT_TRUE(at::equal(out, at::arange(begin, begin + count, type)));
      }
    });
  }
}

TEST(SliceMovement, RankZeroGetsTheSlicesOfAll) {
  run_movers([&](dist::Comm& comm) {
    for (const std::vector<Slice>& held : kSlices) {
      const auto [begin, count] = held[comm.rank()];
      int64_t elements = 0;
      collect_slices(
          comm, begin, at::arange(begin, begin + count, at::kInt),
          [&](int64_t first, const at::Tensor& part) {
            EXPECT_TRUE(at::equal(part, at::arange(first, first + part.numel(), at::kInt)));
            EXPECT_LE(part.nbytes(), size_t{8} << 20);
            elements += part.numel();
          },
          "numbers");
      int64_t all = 0;
      for (const Slice& slice : held) all += slice.count;
      EXPECT_EQ(elements, comm.rank() == 0 ? all : 0);
    }
  });
}

TEST(SliceMovement, AnErrorOfTheReaderEndsAllRanks) {
  class Broken : public model::SliceReader {
    void read(const std::string&, int64_t, const at::Tensor&) override { input_error("this file is damaged"); }
  };
  try {
    run_movers([](dist::Comm& comm) {
      Broken broken;
      StreamedSlices slices(comm, comm.rank() == 0 ? &broken : nullptr);
      slices.read("numbers", 0, at::empty({4}));
    });
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "this file is damaged");
  }
}

}  // namespace
}  // namespace asterism::parallel
