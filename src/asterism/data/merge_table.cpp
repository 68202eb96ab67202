#include "asterism/data/merge_table.h"

#include <bit>

namespace asterism::data {

MergeTable::MergeTable(size_t count) {
  constexpr int kBitsPerSlot = 4;
  slots_.assign(std::bit_ceil(2 * count + 16), kEmpty);  // at least 16: a whole word of filter bits
  filter_.assign(slots_.size() * kBitsPerSlot / 64, 0);
  mask_ = slots_.size() - 1;
  slot_shift_ = 64 - std::countr_zero(slots_.size());
  filter_shift_ = slot_shift_ - 2;
}

uint32_t MergeTable::insert(uint32_t left, uint32_t right, uint32_t rank) {
  const uint64_t pair = pair_of(left, right);
  const uint64_t hash = hash_of(pair), bit = hash >> filter_shift_;
  size_t slot = hash >> slot_shift_;
  while (slots_[slot] != kEmpty) {
    if (slots_[slot] >> kRankBits == pair) return static_cast<uint32_t>(slots_[slot]) & kNoRank;
    slot = (slot + 1) & mask_;
  }
  slots_[slot] = pair << kRankBits | rank;
  filter_[bit / 64] |= uint64_t{1} << (bit % 64);
  return kNoRank;
}

}  // namespace asterism::data
