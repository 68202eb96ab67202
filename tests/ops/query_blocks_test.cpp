#include "asterism/ops/query_blocks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "asterism/ops/documents.h"

namespace asterism::ops {
namespace {

VisibleEntries visible_of(const Windows& windows) {
  return {windows.visible_begin_T, windows.visible_end_T};
}

TEST(QueryBlocks, CoverEveryQueryOnceAndNeverCrossADocument) {
  const Documents documents = make_documents({1, 130, 64, 3});
  const Windows windows = make_windows(documents, 4);
  const auto blocks =
      cut_into_blocks(documents.offsets, visible_of(windows), {.num_heads = 4, .window = 10, .width = 8});
  int64_t next = 0;
  for (const QueryBlock& block : blocks) {
    EXPECT_EQ(block.first, next);
    EXPECT_GT(block.last, block.first);
    next = block.last;
    for (const int64_t border : documents.offsets) EXPECT_FALSE(block.first < border && border < block.last);
    const auto start = *std::prev(std::upper_bound(documents.offsets.begin(), documents.offsets.end(), block.first));
    EXPECT_EQ(block.key_first, std::max(start, block.first - 9));
    EXPECT_EQ(block.entry_last, windows.visible_end_T[block.last - 1].item<int64_t>());
    EXPECT_FALSE(block.lists);
  }
  EXPECT_EQ(next, documents.num_tokens());
}

TEST(QueryBlocks, ShrinkWhereManyEntriesAreVisible) {
  const int64_t num_queries = 64, num_entries = 1 << 16;
  const VisibleEntries visible{at::zeros({num_queries}, at::kLong), at::full({num_queries}, num_entries, at::kLong)};
  const auto blocks = cut_into_blocks({0, num_queries}, visible, {.num_heads = 8, .window = 4, .width = 16});
  EXPECT_LE(blocks[0].num_queries() * 8 * num_entries, 2 << 20);
  const VisibleEntries few{visible.begin_T, at::full({num_queries}, 8, at::kLong)};
  EXPECT_EQ(cut_into_blocks({0, num_queries}, few, {.num_heads = 8, .window = 4, .width = 16}).size(), 1U);
}

TEST(QueryBlocks, ListsReplaceRangesThatAreMuchLonger) {
  const VisibleEntries visible{at::zeros({8}, at::kLong), at::full({8}, 100, at::kLong)};
  EXPECT_TRUE(cut_into_blocks({0, 8}, visible, {.list_length = 10}).at(0).lists);
  EXPECT_FALSE(cut_into_blocks({0, 8}, visible, {.list_length = 90}).at(0).lists);
  EXPECT_FALSE(cut_into_blocks({0, 8}, visible, {}).at(0).lists);
}

TEST(QueryBlocks, RunsFollowTheFirstVisibleEntry) {
  const Windows windows = make_windows(make_documents({5, 1, 4}), 2);
  EXPECT_EQ(equal_begin_runs(visible_of(windows)), (std::vector<int64_t>{0, 5, 10}));
  EXPECT_EQ(equal_begin_runs(visible_of(make_windows(make_documents({}), 2))), (std::vector<int64_t>{0}));
}

TEST(QueryBlocks, PartsCoverAllBlocksAndShareTheWork) {
  const Documents documents = make_documents({3000, 20});
  const auto blocks = cut_into_blocks(documents.offsets, visible_of(make_windows(documents, 4)), {.window = 128});
  const auto parts = partition_blocks(blocks, 4);
  ASSERT_EQ(parts.size(), 5U);
  EXPECT_EQ(parts.front(), 0);
  EXPECT_EQ(parts.back(), static_cast<int64_t>(blocks.size()));
  // The work grows along the document, so the first part has more blocks than the last.
  EXPECT_GT(parts[1] - parts[0], parts[4] - parts[3]);
  EXPECT_EQ(partition_blocks({}, 4), (std::vector<int64_t>{0}));
  EXPECT_EQ(partition_blocks({blocks[0]}, 4), (std::vector<int64_t>{0, 1}));
}

TEST(RunTasks, EveryTaskRunsOnceAndErrorsComeBack) {
  std::vector<std::atomic<int>> calls(9);
  run_tasks(9, [&](int64_t i) { ++calls.at(i); });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
  run_tasks(0, [](int64_t) { FAIL(); });
  EXPECT_THROW(run_tasks(3, [](int64_t i) { TORCH_CHECK(i != 2, "task ", i); }), c10::Error);
}

TEST(Masks, MarkWhatEachQuerySees) {
  const double no = -INFINITY;
  const VisibleEntries visible{at::tensor({2, 2, 2}, at::kLong), at::tensor({2, 4, 5}, at::kLong)};
  const QueryBlock block{.first = 0, .last = 3, .key_first = 0, .entry_first = 2, .entry_last = 5};
  const at::Tensor mask = at::empty({3, 3}, at::kDouble);
  fill_window_mask(block, 2, mask);
  EXPECT_TRUE(at::equal(mask, at::tensor({0., no, no, 0., 0., no, no, 0., 0.}, at::kDouble).view({3, 3})));
  fill_entry_mask(block, visible, {}, mask);
  EXPECT_TRUE(at::equal(mask, at::tensor({no, no, no, 0., 0., no, 0., 0., 0.}, at::kDouble).view({3, 3})));
  const at::Tensor selected = at::tensor({-1, -1, 3, -1, 2, 4}, at::kLong).view({3, 2});
  fill_entry_mask(block, visible, selected, mask);
  EXPECT_TRUE(at::equal(mask, at::tensor({no, no, no, no, 0., no, 0., no, 0.}, at::kDouble).view({3, 3})));
  QueryBlock of_lists = block;
  of_lists.lists = true;
  const at::Tensor short_mask = at::empty({3, 2}, at::kDouble);
  fill_entry_mask(of_lists, visible, selected, short_mask);
  EXPECT_TRUE(at::equal(short_mask, at::tensor({no, no, 0., no, 0., 0.}, at::kDouble).view({3, 2})));
  EXPECT_THROW(fill_entry_mask(block, visible, at::full({3, 1}, 4, at::kLong), mask), c10::Error);
}

}  // namespace
}  // namespace asterism::ops
