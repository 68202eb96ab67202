#include "asterism/data/merge_table.h"

#include <bit>

namespace asterism::data {

MergeTable::MergeTable(size_t count) {
  slots_.resize(std::bit_ceil(2 * count + 2));
  mask_ = slots_.size() - 1;
  shift_ = 64 - std::countr_zero(slots_.size());
}

PackedMerge MergeTable::insert(uint32_t left, uint32_t right, PackedMerge merge) {
  const uint64_t pair = pair_of(left, right);
  size_t slot = slot_of(pair);
  while (slots_[slot].pair != kNoPair) {
    if (slots_[slot].pair == pair) return slots_[slot].merge;
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = {pair, merge};
  return kNoMerge;
}

}  // namespace asterism::data
