#include "asterism/ops/cpu/scratch.h"

#include <memory>
#include <new>

namespace asterism::ops::cpu {

namespace {

constexpr std::align_val_t kAlignment{64};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, kAlignment); }
};

}  // namespace

void* thread_scratch(size_t bytes) {
  thread_local std::unique_ptr<std::byte[], Free> memory;
  thread_local size_t size = 0;
  if (bytes > size) {
    memory.reset();
    size = 0;
    memory.reset(new (kAlignment) std::byte[bytes]);
    size = bytes;
  }
  return memory.get();
}

}  // namespace asterism::ops::cpu
