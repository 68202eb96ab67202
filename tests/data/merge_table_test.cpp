#include "asterism/data/merge_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace asterism::data {
namespace {

TEST(MergeTable, FindsWhatAMapFinds) {
  std::mt19937 random(5);
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> expected;
  MergeTable table(3000);
  for (uint32_t rank = 0; rank < 3000; ++rank) {
    const std::pair<uint32_t, uint32_t> pair(random() % 200, random() % 200);
    const auto [known, is_new] = expected.emplace(pair, rank);
    EXPECT_EQ(table.insert(pair.first, pair.second, rank), is_new ? MergeTable::kNoRank : known->second);
  }
  for (uint32_t left = 0; left < 201; ++left) {
    for (uint32_t right = 0; right < 201; ++right) {
      const auto known = expected.find({left, right});
      ASSERT_EQ(table.find(left, right), known == expected.end() ? MergeTable::kNoRank : known->second)
          << left << " " << right;
    }
  }
}

TEST(MergeTable, HoldsTheLargestTokensAndRanks) {
  MergeTable table(2);
  const uint32_t token = MergeTable::kMaxToken, rank = MergeTable::kNoRank - 1;
  EXPECT_EQ(table.insert(token, token, rank), MergeTable::kNoRank);
  EXPECT_EQ(table.insert(0, token, 0), MergeTable::kNoRank);
  EXPECT_EQ(table.find(token, token), rank);
  EXPECT_EQ(table.find(0, token), 0u);
  EXPECT_EQ(table.find(token, 0), MergeTable::kNoRank);
}

TEST(MergeTable, NoTokenIsInNoMerge) {
  MergeTable table(1);
  EXPECT_EQ(table.find(MergeTable::kNoToken, MergeTable::kNoToken), MergeTable::kNoRank);
  table.insert(1, 2, 0);
  EXPECT_EQ(table.find(MergeTable::kNoToken, 2), MergeTable::kNoRank);
  EXPECT_EQ(table.find(1, MergeTable::kNoToken), MergeTable::kNoRank);
}

}  // namespace
}  // namespace asterism::data
