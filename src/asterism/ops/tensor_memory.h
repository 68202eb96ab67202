#pragma once

#include <cstddef>

namespace asterism::ops {

/// From now on the memory of CPU tensors comes from one pool that keeps what is freed (core/block_pool.h); tensors
/// below 8 KB stay with the C library. Call once in a program, before its first tensor. A tensor that finds no memory
/// throws c10::OutOfMemoryError with the bytes it asked for.
void pool_tensor_memory();

}  // namespace asterism::ops
