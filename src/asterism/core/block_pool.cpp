#include "asterism/core/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace asterism {

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeastRange = size_t{64} << 20;
// Memory is asked for in steps of this size: many blocks per system call, little that is never used.
constexpr size_t kGrowth = size_t{16} << 20;

size_t rounded_up(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::byte* reserve(size_t& bytes) {
  for (; bytes >= kLeastRange; bytes /= 2) {
    void* range = mmap(nullptr, bytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range != MAP_FAILED) return static_cast<std::byte*>(range);
  }
  throw std::bad_alloc();
}

}  // namespace

BlockPool::BlockPool(size_t range_bytes) {
  size_t bytes = rounded_up(range_bytes, kHugePage);
  std::byte* range = reserve(bytes);
  // The ends that do not belong to a whole huge page go back.
  const size_t lead = (kHugePage - reinterpret_cast<size_t>(range) % kHugePage) % kHugePage;
  if (lead > 0) munmap(range, lead);
  if (lead < kHugePage) munmap(range + lead + bytes, kHugePage - lead);
  begin_ = top_ = range + lead;
  end_ = begin_ + bytes;
}

BlockPool::~BlockPool() {
  munmap(begin_, static_cast<size_t>(end_ - begin_));
}

void* BlockPool::take(size_t bytes) {
  if (bytes > static_cast<size_t>(end_ - begin_)) return nullptr;
  const size_t size = std::max(kAlignment, rounded_up(bytes, kAlignment));
  const std::lock_guard lock(mutex_);
  const auto fit = free_.lower_bound({size, nullptr});
  const auto block = fit != free_.end() ? blocks_.find(fit->second) : grow(size);
  if (block == blocks_.end()) return nullptr;
  unmark_free(block);
  if (block->second.size > size) {
    mark_free(blocks_.emplace_hint(std::next(block), block->first + size, Block{block->second.size - size, true}));
    block->second.size = size;
  }
  used_bytes_ += size;
  return block->first;
}

void BlockPool::give(void* address) {
  const std::lock_guard lock(mutex_);
  auto block = blocks_.find(static_cast<std::byte*>(address));
  used_bytes_ -= block->second.size;
  if (block != blocks_.begin()) {
    const auto before = std::prev(block);
    if (before->second.free) block = joined(before, block);
  }
  const auto after = std::next(block);
  if (after != blocks_.end() && after->second.free) block = joined(block, after);
  mark_free(block);
}

bool BlockPool::holds(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  return byte >= begin_ && byte < end_;
}

size_t BlockPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

size_t BlockPool::held_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(top_ - begin_);
}

// A free block of at least `bytes` at the end, which begins with the last block if that is free; end() when it cannot.
BlockPool::Blocks::iterator BlockPool::grow(size_t bytes) {
  const auto last = blocks_.empty() ? blocks_.end() : std::prev(blocks_.end());
  const size_t present = last != blocks_.end() && last->second.free ? last->second.size : 0;
  const size_t room = static_cast<size_t>(end_ - top_);
  if (bytes - present > room) return blocks_.end();
  const size_t more = std::min(room, rounded_up(bytes - present, kGrowth));
  if (mprotect(top_, more, PROT_READ | PROT_WRITE) != 0) return blocks_.end();
  // Advice: without huge pages everything works, a little slower.
  madvise(top_, more, MADV_HUGEPAGE);
  auto block = blocks_.emplace_hint(blocks_.end(), top_, Block{more, false});
  top_ += more;
  if (present > 0) block = joined(last, block);
  mark_free(block);
  return block;
}

void BlockPool::mark_free(Blocks::iterator block) {
  block->second.free = true;
  free_.emplace(block->second.size, block->first);
}

void BlockPool::unmark_free(Blocks::iterator block) {
  free_.erase({block->second.size, block->first});
  block->second.free = false;
}

// One block instead of two neighbours, not listed as free.
BlockPool::Blocks::iterator BlockPool::joined(Blocks::iterator first, Blocks::iterator second) {
  if (first->second.free) unmark_free(first);
  if (second->second.free) unmark_free(second);
  first->second.size += second->second.size;
  blocks_.erase(second);
  return first;
}

}  // namespace asterism
