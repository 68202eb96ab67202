#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace asterism::data {

/// The ranks of merges by their pair of tokens. A slot of the table is one word (20 bits for each token, 24 for the
/// rank), so that the table of a large vocabulary stays in a second-level cache.
class MergeTable {
 public:
  static constexpr uint32_t kMaxToken = (1u << 20) - 2;
  static constexpr uint32_t kNoToken = kMaxToken + 1;  // may be asked for; in no merge
  static constexpr uint32_t kNoRank = (1u << 24) - 1;  // after all ranks

  /// For `count` < kNoRank merges.
  explicit MergeTable(size_t count);

  /// Returns the rank that the pair had before, and keeps it then; kNoRank for a new pair.
  uint32_t insert(uint32_t left, uint32_t right, uint32_t rank);

  /// The rank of a pair, or kNoRank.
  uint32_t find(uint32_t left, uint32_t right) const {
    const uint64_t pair = pair_of(left, right);
    const uint64_t hash = hash_of(pair);
    const uint64_t bit = hash >> filter_shift_;
    if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return kNoRank;
    size_t slot = hash >> slot_shift_;
    while (slots_[slot] >> kRankBits != pair && slots_[slot] != kEmpty) slot = (slot + 1) & mask_;
    return static_cast<uint32_t>(slots_[slot]) & kNoRank;
  }

 private:
  // Open addressing, a power of two of slots, at most half of them taken.
  static constexpr int kRankBits = 24;
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // kNoToken twice, kNoRank
  static uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 20 | right; }
  // Fibonacci hashing: the high bits of the product depend on all bits of the pair.
  static uint64_t hash_of(uint64_t pair) { return pair * 0x9E3779B97F4A7C15ull; }

  std::vector<uint64_t> slots_;
  // One bit for the high bits of each hash. Most pairs that are asked for are in no merge; this says so for nine of ten
  // of them, in a sixteenth of the memory.
  std::vector<uint64_t> filter_;
  size_t mask_ = 0;
  int slot_shift_ = 0, filter_shift_ = 0;
};

}  // namespace asterism::data
