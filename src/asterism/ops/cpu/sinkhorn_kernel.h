#pragma once

#include <cstdint>
#include <vector>

namespace asterism::ops::cpu {

/// Tokens of one Sinkhorn block. The lanes are the innermost index, so that sums over the short axes are vector code.
inline constexpr int64_t kSinkhornLanes = 16;

/// The Sinkhorn chain of model-spec 3.2 on blocks of kSinkhornLanes tokens, element (j, k) of lane l at
/// [(j * N + k) * kSinkhornLanes + l]. An object holds the trajectory of one block; use one object per thread. Lanes do
/// not influence each other, so a lane's result does not depend on its place in a block.
template <typename T>
class Sinkhorn {
 public:
  /// iterations >= 1: one softmax with column step, then iterations - 1 pairs of row and column step.
  Sinkhorn(int64_t num_streams, int64_t iterations, T eps);

  /// block: logits in, mix out.
  void forward(T* block);

  /// For the block of the last forward(): gradient of the mix in, gradient of the logits out (3.5).
  void backward(T* grad) const;

 private:
  int64_t element(int64_t j, int64_t k) const { return (j * num_streams_ + k) * kSinkhornLanes; }
  void softmax_rows(T* block);
  void normalize(T* block, int64_t step);
  void normalize_grad(T* grad, int64_t step) const;
  void softmax_rows_grad(T* grad) const;

  int64_t num_streams_, num_steps_, block_size_, group_size_;
  T eps_;
  std::vector<T> softmax_;       // [N, N, lanes]
  std::vector<T> outputs_;       // [steps, N, N, lanes], result of each step
  std::vector<T> denominators_;  // [steps, N, lanes], sum + eps of each step
};

}  // namespace asterism::ops::cpu
