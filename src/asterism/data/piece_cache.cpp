#include "asterism/data/piece_cache.h"

namespace asterism::data {

PieceCache::PieceCache() : sets_(size_t{1} << kSetBits) {}

void PieceCache::insert(const Key& key, const Tokens& tokens) {
  Set& set = sets_[set_of(key)];
  set.older = set.newer;
  set.newer = {key, tokens};
}

}  // namespace asterism::data
