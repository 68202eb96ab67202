#pragma once

#include <vector>

#include "asterism/ops/cpu/sinkhorn_steps.h"

namespace asterism::ops::cpu {

/// The Sinkhorn chain of model-spec 3.2 on blocks of kSinkhornLanes tokens, element (j, k) of lane l at
/// [(j * N + k) * kSinkhornLanes + l]. An object holds the trajectory of one block; use one object per thread. Lanes do
/// not influence each other, so a lane's result does not depend on its place in a block.
template <typename T>
class Sinkhorn {
 public:
  /// iterations >= 1: one softmax with column step, then iterations - 1 pairs of row and column step.
  Sinkhorn(int64_t num_streams, int64_t iterations, T eps);
  Sinkhorn(const Sinkhorn&) = delete;
  Sinkhorn& operator=(const Sinkhorn&) = delete;

  /// block: logits in, mix out.
  void forward(T* block);

  /// For the block of the last forward(): gradient of the mix in, gradient of the logits out (3.5).
  void backward(T* grad);

 private:
  std::vector<T> memory_;
  SinkhornTrace<T> trace_;
};

}  // namespace asterism::ops::cpu
