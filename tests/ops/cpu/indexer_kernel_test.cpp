#include "asterism/ops/cpu/indexer_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "asterism/ops/cpu/level.h"

namespace asterism::ops::cpu {
namespace {

// Whole numbers from -2 to 2: sums of their products are exact, and ties are common.
std::vector<float> whole_numbers(int64_t count, uint64_t seed) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    numbers.push_back(static_cast<float>(static_cast<int>(seed >> 40) % 5 - 2));
  }
  return numbers;
}

struct IndexProblem {
  int64_t tokens, heads, width;
  std::vector<float> q, keys, weight, panels;
  std::vector<int64_t> begin, end;
  IndexArgs args;

  IndexProblem(int64_t t, int64_t h, int64_t d) : tokens(t), heads(h), width(d), args{} {
    q = whole_numbers(t * h * d, 1), keys = whole_numbers(t * d, 2), weight = whole_numbers(t * h, 3);
    for (int64_t i = 0; i < t; ++i) begin.push_back(0), end.push_back(i + 1);
    panels.resize(index_panels_size(t, d));
    args = {.num_heads = h,
            .width = d,
            .num_keys = t,
            .q = q.data(),
            .weight = weight.data(),
            .panels = panels.data(),
            .visible_begin = begin.data(),
            .visible_end = end.data()};
    pack_index_keys(args, keys.data(), 0, num_index_panels(t));
  }

  float score(int64_t t, int64_t c) const {
    float sum = 0;
    for (int64_t h = 0; h < heads; ++h) {
      float product = 0;
      for (int64_t i = 0; i < width; ++i) product += q[(t * heads + h) * width + i] * keys[c * width + i];
      sum += weight[t * heads + h] * std::max(product, 0.0F);
    }
    return sum;
  }
  std::vector<QueryBlock> blocks() const {
    std::vector<QueryBlock> all;
    for (int64_t first = 0; first < tokens; first += 7) {
      const int64_t last = std::min(first + 7, tokens);
      all.push_back({.first = first, .last = last, .key_first = last, .entry_first = 0, .entry_last = last});
    }
    return all;
  }
  std::vector<int64_t> best(int64_t t, int64_t k) const {
    std::vector<int64_t> order;
    for (int64_t c = 0; c <= t; ++c) order.push_back(c);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score(t, a) > score(t, b); });
    order.resize(std::min<size_t>(order.size(), k));
    std::sort(order.begin(), order.end());
    order.resize(k, -1);
    return order;
  }
};

TEST(IndexerKernel, ChoosesTheLargestScoresAtEveryLevel) {
  if (highest_level() < Level::kAvx2) GTEST_SKIP() << "no kernels for this CPU";
  const Level before = level();
  for (const auto& [tokens, heads, width] : std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {64, 6, 8}, {150, 7, 13}}) {
    IndexProblem p(tokens, heads, width);
    for (const Level level : {Level::kAvx2, Level::kAvx512, Level::kAvx512Bf16}) {
      if (level > highest_level()) continue;
      choose_level(level);
      for (const QueryBlock& block : p.blocks()) {
        std::vector<float> rows(block.num_queries() * block.num_visible_entries());
        index_scores(p.args, block, rows.data(), block.num_visible_entries());
        for (int64_t t = block.first; t < block.last; ++t) {
          for (int64_t c = 0; c < block.entry_last; ++c) {
            EXPECT_EQ(rows[(t - block.first) * block.entry_last + c], c <= t ? p.score(t, c) : -INFINITY);
          }
        }
      }
      for (const int64_t k : {int64_t{1}, std::min<int64_t>(tokens, 20)}) {
        std::vector<int64_t> selected(tokens * k);
        for (const QueryBlock& block : p.blocks()) EXPECT_EQ(index_topk(p.args, block, k, selected.data()), -1);
        for (int64_t t = 0; t < tokens; ++t) {
          EXPECT_EQ(std::vector<int64_t>(selected.begin() + t * k, selected.begin() + (t + 1) * k), p.best(t, k))
              << level_name(level) << " query " << t << " k " << k;
        }
      }
    }
  }
  choose_level(before);
}

}  // namespace
}  // namespace asterism::ops::cpu
