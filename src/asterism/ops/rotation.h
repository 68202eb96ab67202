#pragma once

#include <ATen/Parallel.h>

#include <algorithm>

#include "asterism/ops/cpu/rope_kernel.h"
#include "asterism/ops/dense.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/rope.h"

namespace asterism::ops {

/// Calls run(x, rotation, rows), with pointer types for the type of `x` (contiguous fp32, fp64 or bf16), once for every
/// range of rows of the last dimension that a thread takes. Every other tensor of the operator has the type of x.
template <typename Run>
void for_rotated_rows(const at::Tensor& x, const RopeTable& table, bool inverse, const Run& run) {
  const at::ScalarType type = sum_type(x.scalar_type());
  const at::Tensor cos = dense(table.cos, type), sin = dense(table.sin, type);
  const int64_t width = x.size(-1), rows = x.numel() / width;
  const int64_t grain = std::max<int64_t>(1, 16384 / width);
  const auto split = [&](auto storage, auto real) {
    using T = decltype(real);
    const cpu::Rotation<T> rotation{.cos = cos.const_data_ptr<T>(),
                                    .sin = sin.const_data_ptr<T>(),
                                    .heads = x.dim() == 3 ? x.size(1) : 1,
                                    .width = width,
                                    .half = cos.size(1),
                                    .inverse = inverse};
    at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) { run(storage, rotation, begin, end); });
  };
  switch (x.scalar_type()) {
    case at::kDouble:
      return split(double{}, double{});
    case at::kFloat:
      return split(float{}, float{});
    case at::kBFloat16:
      return split(uint16_t{}, float{});
    default:
      TORCH_CHECK(false, "[rope] x must be fp32, fp64 or bf16, got ", x.scalar_type());
  }
}

/// The data of a tensor of storage type S, which is uint16_t for bf16.
template <typename S>
const S* values_of(const at::Tensor& tensor) {
  return static_cast<const S*>(tensor.const_data_ptr());
}

template <typename S>
S* results_of(const at::Tensor& tensor) {
  return static_cast<S*>(tensor.mutable_data_ptr());
}

}  // namespace asterism::ops
