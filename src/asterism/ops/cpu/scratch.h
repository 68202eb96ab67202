#pragma once

#include <cstddef>

namespace asterism::ops::cpu {

/// At least `bytes` bytes at a multiple of 64, undefined content, owned by the calling thread: grown when needed,
/// reused by the next call, freed with the thread. One user at a time.
void* thread_scratch(size_t bytes);

}  // namespace asterism::ops::cpu
