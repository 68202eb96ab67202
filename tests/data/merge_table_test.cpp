#include "asterism/data/merge_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace asterism::data {
namespace {

TEST(MergeTable, PacksRankAboveResult) {
  const PackedMerge merge = pack_merge(7, 0xFFFFFFFE);
  EXPECT_EQ(merge_rank(merge), 7u);
  EXPECT_EQ(merge_result(merge), 0xFFFFFFFEu);
  EXPECT_LT(merge, pack_merge(8, 0));
  EXPECT_LT(pack_merge(~uint32_t{0} - 1, 0), kNoMerge);
}

TEST(MergeTable, FindsWhatAMapFinds) {
  std::mt19937 random(5);
  std::map<std::pair<uint32_t, uint32_t>, PackedMerge> expected;
  MergeTable table(3000);
  for (uint32_t rank = 0; rank < 3000; ++rank) {
    const std::pair<uint32_t, uint32_t> pair(random() % 200, random() % 200);
    const PackedMerge merge = pack_merge(rank, rank + 256);
    const auto [known, is_new] = expected.emplace(pair, merge);
    EXPECT_EQ(table.insert(pair.first, pair.second, merge), is_new ? kNoMerge : known->second);
  }
  for (uint32_t left = 0; left < 201; ++left) {
    for (uint32_t right = 0; right < 201; ++right) {
      const auto known = expected.find({left, right});
      ASSERT_EQ(table.find(left, right), known == expected.end() ? kNoMerge : known->second) << left << " " << right;
    }
  }
}

TEST(MergeTable, EmptyHasNothing) {
  const MergeTable table(0);
  EXPECT_EQ(table.find(0, 0), kNoMerge);
  EXPECT_EQ(table.find(~uint32_t{0}, ~uint32_t{0}), kNoMerge);
}

}  // namespace
}  // namespace asterism::data
