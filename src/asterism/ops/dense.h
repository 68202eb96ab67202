#pragma once

#include <ATen/ATen.h>

namespace asterism::ops {

/// The values in `type`, contiguous, as kernels want them: the same tensor when it is so already.
inline at::Tensor dense(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.to(type).contiguous();
}

/// The data, or null for an undefined tensor.
template <typename T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

}  // namespace asterism::ops
