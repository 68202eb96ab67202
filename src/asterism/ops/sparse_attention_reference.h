#pragma once

#include "asterism/ops/attention_inputs.h"

namespace asterism::ops {

/// sparse_attention in plain tensor operations, for every type: the readable form, the oracle of the fused one, and
/// what runs in fp64 and on CPUs without kernels. `rotation_T` must be undefined.
AttentionOutputs reference_attention(const AttentionInputs& in);
AttentionGradients reference_attention_backward(const AttentionInputs& in, const AttentionOutputs& out,
                                                const at::Tensor& grad_o_THP, const WantedGradients& wanted);

/// For tests and benchmarks: while one lives, sparse_attention and the indexer's selection are plain tensor operations
/// for every type. Backward passes follow their forward.
class ReferenceAttention {
 public:
  ReferenceAttention();
  ~ReferenceAttention();
  ReferenceAttention(const ReferenceAttention&) = delete;
  ReferenceAttention& operator=(const ReferenceAttention&) = delete;

  static bool is_wanted();
};

}  // namespace asterism::ops
