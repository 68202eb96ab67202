#include "asterism/ops/tensor_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>

#include <cstring>

#include "asterism/core/block_pool.h"

namespace asterism::ops {

namespace {

// Addresses cost nothing; no machine has as much memory.
constexpr size_t kRangeBytes = size_t{1} << 44;
constexpr size_t kLeastPooled = 8192;

// Never destroyed: tensors of other static objects may outlive any order of destruction.
BlockPool& tensor_pool() {
  static auto* pool = new BlockPool(kRangeBytes);
  return *pool;
}

void release(void* memory) {
  if (tensor_pool().holds(memory)) {
    tensor_pool().give(memory);
  } else {
    c10::free_cpu(memory);
  }
}

struct PooledAllocator : c10::Allocator {
  at::DataPtr allocate(size_t bytes) override {
    void* memory = bytes < kLeastPooled ? c10::alloc_cpu(bytes) : tensor_pool().take(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, memory != nullptr || bytes == 0, "no memory for a tensor of ", bytes,
                     " bytes beside the ", tensor_pool().used_bytes(), " bytes of the others");
    return {memory, memory, &release, at::Device(at::DeviceType::CPU)};
  }

  at::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void pool_tensor_memory() {
  static PooledAllocator allocator;
  tensor_pool();
  // Above the priority with which the library sets its own.
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

}  // namespace asterism::ops
