#include "asterism/ops/tensor_memory.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include "asterism/core/memory.h"

namespace asterism::ops {
namespace {

// Other tests keep the library's allocator. Tensors made meanwhile may live on: each remembers who frees it.
struct AllocatorGuard {
  c10::Allocator* before = c10::GetCPUAllocator();
  ~AllocatorGuard() { c10::SetCPUAllocator(before, /*priority=*/100); }
};

TEST(TensorMemory, LargeTensorsComeFromThePoolAndTheirMemoryStays) {
  const AllocatorGuard guard;
  pool_tensor_memory();
  const void* place = at::full({1 << 20}, 3.0F).const_data_ptr();
  const uint64_t freed = resident_bytes();
  const at::Tensor again = at::empty({1 << 20}, at::kFloat);
  EXPECT_EQ(again.const_data_ptr(), place);
  at::Tensor(again).fill_(1.0);
  EXPECT_LE(resident_bytes(), freed + (1 << 20));
}

TEST(TensorMemory, TensorsOfAllSizesHoldWhatIsWritten) {
  const AllocatorGuard guard;
  pool_tensor_memory();
  std::vector<at::Tensor> tensors;
  for (const int64_t size : {0, 1, 100, 2047, 2048, 2049, 100'000, 3'000'000}) {
    tensors.push_back(at::full({size}, static_cast<double>(size), at::kFloat));
  }
  tensors.push_back(tensors.back().resize_({4'000'000}).fill_(2.0));
  for (const at::Tensor& tensor : tensors) {
    EXPECT_EQ(std::get<0>(at::_unique(tensor)).numel(), std::min<int64_t>(1, tensor.numel()));
  }
  EXPECT_EQ(tensors[3][2046].item<float>(), 2047.0F);
}

TEST(TensorMemory, WithoutMemoryTheErrorNamesTheBytes) {
  const AllocatorGuard guard;
  pool_tensor_memory();
  try {
    at::empty({int64_t{1} << 50}, at::kByte);
    FAIL() << "an allocation of 2^50 bytes must fail";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("1125899906842624"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace asterism::ops
