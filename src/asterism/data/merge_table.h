#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace asterism::data {

/// What two neighbouring tokens become: rank in the high half, id of the result in the low half. Ordered by rank;
/// equal only for equal pairs.
using PackedMerge = uint64_t;
inline constexpr PackedMerge kNoMerge = ~uint64_t{0};

constexpr PackedMerge pack_merge(uint32_t rank, uint32_t result) {
  return uint64_t{rank} << 32 | result;
}
constexpr uint32_t merge_rank(PackedMerge merge) {
  return static_cast<uint32_t>(merge >> 32);
}
constexpr uint32_t merge_result(PackedMerge merge) {
  return static_cast<uint32_t>(merge);
}

/// Merges by their pair of tokens.
class MergeTable {
 public:
  explicit MergeTable(size_t count);  // how many will be inserted

  /// Returns the merge that the pair had before, and keeps it then; kNoMerge for a new pair.
  PackedMerge insert(uint32_t left, uint32_t right, PackedMerge merge);

  PackedMerge find(uint32_t left, uint32_t right) const {
    const uint64_t pair = pair_of(left, right);
    size_t slot = slot_of(pair);
    while (slots_[slot].pair != pair) {
      if (slots_[slot].pair == kNoPair) return kNoMerge;
      slot = (slot + 1) & mask_;
    }
    return slots_[slot].merge;
  }

 private:
  // Open addressing, a power of two of slots, at most half of them taken.
  struct Slot {
    uint64_t pair = kNoPair;
    PackedMerge merge = kNoMerge;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
  // Fibonacci hashing: the high bits of the product depend on all bits of the pair.
  size_t slot_of(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15ull) >> shift_; }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace asterism::data
