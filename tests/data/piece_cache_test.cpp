#include "asterism/data/piece_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "asterism/data/merge_table.h"

namespace asterism::data {
namespace {

TEST(PieceCache, KeysAreTheBytesAndTheirNumber) {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  size_t count = 0;
  for (size_t size = 1; size <= PieceCache::kMaxBytes; ++size) {
    std::string piece(size, '\0');
    for (size_t at = 0; at < size; ++at) {
      for (const char byte : {'\x01', '\xFF'}) {
        piece[at] = byte;
        const PieceCache::Key key = PieceCache::key_of(piece);
        seen.insert({key.low, key.high});
        ++count;
        piece[at] = '\0';
      }
    }
    const PieceCache::Key zeros = PieceCache::key_of(piece);
    seen.insert({zeros.low, zeros.high});
    ++count;
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(PieceCache, GivesWhatWasInsertedOrNothing) {
  PieceCache cache;
  std::mt19937 random(3);
  std::map<std::string, PieceCache::Tokens> inserted;
  size_t found = 0;
  for (int i = 0; i < 100000; ++i) {
    std::string piece;
    for (size_t size = 1 + random() % 3; piece.size() < size;) piece.push_back(static_cast<char>('a' + random() % 40));
    const PieceCache::Key key = PieceCache::key_of(piece);
    if (const PieceCache::Tokens* tokens = cache.find(key)) {
      const PieceCache::Tokens& expected = inserted.at(piece);
      for (size_t k = 0; k < PieceCache::kMaxTokens; ++k) {
        ASSERT_EQ((*tokens)[k].id, expected[k].id);
        ASSERT_EQ((*tokens)[k].length, expected[k].length);
      }
      ++found;
      continue;
    }
    PieceCache::Tokens tokens{};
    for (size_t k = 0, size = 1 + random() % PieceCache::kMaxTokens; k < size; ++k) {
      tokens[k] = {static_cast<uint32_t>(random() % MergeTable::kMaxToken), static_cast<uint32_t>(1 + random() % 15)};
    }
    cache.insert(key, tokens);
    inserted[piece] = tokens;
  }
  EXPECT_GT(found, 1000u);
}

}  // namespace
}  // namespace asterism::data
