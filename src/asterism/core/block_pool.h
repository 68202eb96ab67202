#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace asterism {

/// Large blocks of memory, kept for the next request instead of being returned to the system: a training step asks for
/// the same sizes again and again, and the first write to a fresh page costs several times as much as the write. The
/// smallest free block that is large enough is taken (the lowest of equals) and its rest stays free; neighbours that
/// are free become one. All blocks lie in one range of addresses, backed by huge pages where the system has them, and
/// small long-lived allocations of the C library cannot come between them.
///
/// Thread-safe. Blocks that are still out when the pool is destroyed are unmapped with it.
class BlockPool {
 public:
  /// Reserves up to `range_bytes` of addresses, no memory: half as much, and so on, where the system refuses.
  /// Throws std::bad_alloc when not even 64 MB can be reserved.
  explicit BlockPool(size_t range_bytes);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// A block of at least `bytes` bytes at a multiple of 64, undefined content; nullptr when the range or the system's
  /// memory is used up. Zero bytes are one block of the smallest size.
  void* take(size_t bytes);

  /// Gives a block back. `block` came from `take` and is out.
  void give(void* block);

  /// Whether the address lies in the range of this pool.
  bool holds(const void* address) const;

  /// Bytes in blocks that are out, and bytes that were ever taken from the system.
  size_t used_bytes() const;
  size_t held_bytes() const;

 private:
  struct Block {
    size_t size;
    bool free;
  };
  using Blocks = std::map<std::byte*, Block>;

  Blocks::iterator grow(size_t bytes);
  void mark_free(Blocks::iterator block);
  void unmark_free(Blocks::iterator block);
  Blocks::iterator joined(Blocks::iterator first, Blocks::iterator second);

  mutable std::mutex mutex_;
  std::byte* begin_ = nullptr;
  std::byte* top_ = nullptr;  // up to here the range can be read and written
  std::byte* end_ = nullptr;
  size_t used_bytes_ = 0;
  Blocks blocks_;                                 // all of [begin, top), by address
  std::set<std::pair<size_t, std::byte*>> free_;  // by size, then address
};

}  // namespace asterism
