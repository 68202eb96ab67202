#include "asterism/data/piece_cache.h"

#include <algorithm>

namespace asterism::data {

PieceCache::PieceCache() : sets_(size_t{1} << kSetBits) {}

void PieceCache::insert(const Key& key, std::span<const int64_t> tokens) {
  Set& set = sets_[set_of(key)];
  set.older = set.newer;
  set.newer.key = key;
  set.newer.tokens.fill(kNone);
  std::transform(tokens.begin(), tokens.end(), set.newer.tokens.begin(),
                 [](int64_t id) { return static_cast<uint32_t>(id); });
}

}  // namespace asterism::data
