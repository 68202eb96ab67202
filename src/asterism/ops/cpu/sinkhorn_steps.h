#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

/// Tokens of one Sinkhorn block. The lanes are the innermost index, so that sums over the short axes are vector code.
inline constexpr int64_t kSinkhornLanes = 16;

/// What sinkhorn_kernel.cpp and the code for one level (isa/sinkhorn.cpp) share: the trajectory of one block.
template <typename T>
struct SinkhornTrace {
  int64_t num_streams;  // N
  int64_t num_steps;    // normalisations; even ones divide columns, odd ones rows
  T eps;
  T* softmax;      // [N, N, lanes]
  T* output;       // [steps, N, N, lanes], result of each step
  T* denominator;  // [steps, N, lanes], sum + eps of each step
};

}  // namespace asterism::ops::cpu
