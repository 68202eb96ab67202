#include "asterism/core/block_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

#include "asterism/core/memory.h"
#include "asterism/core/rng.h"

namespace asterism {
namespace {

constexpr size_t kMegabyte = size_t{1} << 20;
constexpr size_t kRange = 1024 * kMegabyte;

// A block that is out, filled with one byte that only it holds.
struct Filled {
  unsigned char* memory;
  size_t size;
  unsigned char fill;

  bool intact() const {
    for (size_t i = 0; i < size; ++i) {
      if (memory[i] != fill) return false;
    }
    return true;
  }
};

Filled take_filled(BlockPool& pool, size_t size, unsigned char fill) {
  auto* memory = static_cast<unsigned char*>(pool.take(size));
  EXPECT_NE(memory, nullptr);
  EXPECT_EQ(reinterpret_cast<size_t>(memory) % 64, 0U);
  std::memset(memory, fill, size);
  return {memory, size, fill};
}

// Takes and gives at random; every block keeps what was written to it.
void take_and_give(BlockPool& pool, uint64_t seed) {
  const RandomStream stream(seed, "block_pool");
  std::vector<Filled> out;
  for (uint64_t i = 0; i < 3000; ++i) {
    if (out.size() < 40 && stream.below(2, 4 * i) == 0) {
      const size_t size = size_t{1} << stream.below(18, 4 * i + 1);
      out.push_back(take_filled(pool, size + stream.below(size, 4 * i + 2), static_cast<unsigned char>(i)));
    } else if (!out.empty()) {
      const size_t k = stream.below(out.size(), 4 * i + 3);
      ASSERT_TRUE(out[k].intact());
      pool.give(out[k].memory);
      out.erase(out.begin() + static_cast<ptrdiff_t>(k));
    }
  }
  for (const Filled& block : out) {
    EXPECT_TRUE(block.intact());
    pool.give(block.memory);
  }
}

TEST(BlockPool, BlocksNeverOverlapAndAllOfThemComeBack) {
  BlockPool pool(kRange);
  take_and_give(pool, 1);
  EXPECT_EQ(pool.used_bytes(), 0U);
  // What was given back has become one block again: it is taken whole, without more memory.
  const size_t held = pool.held_bytes();
  void* whole = pool.take(held);
  ASSERT_NE(whole, nullptr);
  EXPECT_EQ(pool.held_bytes(), held);
  pool.give(whole);
}

TEST(BlockPool, ThreadsShareIt) {
  BlockPool pool(kRange);
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 3; ++seed) threads.emplace_back([&pool, seed] { take_and_give(pool, seed); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.used_bytes(), 0U);
}

TEST(BlockPool, TheSameRequestsAgainTakeNoMoreMemory) {
  BlockPool pool(kRange);
  const auto step = [&] {
    std::vector<void*> kept;
    for (size_t i = 1; i <= 20; ++i) {
      kept.push_back(pool.take(i * 100'000));
      void* passing = pool.take(i * 70'000);
      pool.give(passing);
    }
    for (void* block : kept) pool.give(block);
  };
  step();
  const size_t held = pool.held_bytes();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(pool.held_bytes(), held);
}

TEST(BlockPool, TheSmallestBlockThatFitsIsTaken) {
  BlockPool pool(kRange);
  void* large = pool.take(2 * kMegabyte);
  void* wall = pool.take(64);
  void* small = pool.take(kMegabyte);
  void* other_wall = pool.take(64);
  pool.give(large);
  pool.give(small);
  EXPECT_EQ(pool.take(kMegabyte - 100), small);
  EXPECT_EQ(pool.take(kMegabyte + 100), large);
  pool.give(wall);
  pool.give(other_wall);
}

TEST(BlockPool, FreedMemoryStaysWithTheProcess) {
  BlockPool pool(kRange);
  const Filled block = take_filled(pool, 64 * kMegabyte, 1);
  const uint64_t full = resident_bytes();
  pool.give(block.memory);
  EXPECT_GE(resident_bytes(), full - kMegabyte);
}

TEST(BlockPool, AnExhaustedRangeIsToldByNull) {
  BlockPool pool(64 * kMegabyte);
  EXPECT_EQ(pool.take(65 * kMegabyte), nullptr);
  EXPECT_EQ(pool.take(SIZE_MAX), nullptr);
  void* most = pool.take(60 * kMegabyte);
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(pool.take(5 * kMegabyte), nullptr);
  pool.give(most);
  EXPECT_NE(pool.take(64 * kMegabyte), nullptr);
}

TEST(BlockPool, NothingIsABlockOfItsOwn) {
  BlockPool pool(kRange);
  void* first = pool.take(0);
  void* second = pool.take(0);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(first, second);
  EXPECT_TRUE(pool.holds(first));
  EXPECT_FALSE(pool.holds(&pool));
  pool.give(first);
  pool.give(second);
  EXPECT_EQ(pool.used_bytes(), 0U);
}

}  // namespace
}  // namespace asterism
