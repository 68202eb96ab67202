#pragma once

#include <memory>

#include "asterism/ops/attention_inputs.h"

namespace asterism::ops {

/// Whether fused_attention computes these inputs: fp32 or bf16 on a CPU that has its kernels.
bool can_fuse_attention(const AttentionInputs& in);

/// sparse_attention by the kernels of cpu/attention_kernel.h. Saved for the backward: inputs, o (turned back), lse.
AttentionOutputs fused_attention(const AttentionInputs& in);
AttentionGradients fused_attention_backward(const AttentionInputs& in, const AttentionOutputs& out,
                                            const at::Tensor& grad_o_THP, const WantedGradients& wanted);

/// What the attention gave to entries, block by block, for the indexer's teacher. Uses q, entries, selected and visible
/// of the inputs, and lse_TH [T, H] (fp32) of their attention. The inputs must be ones that can be fused.
class AttentionMass {
 public:
  AttentionMass(const AttentionInputs& in, const at::Tensor& lse_TH);
  ~AttentionMass();
  AttentionMass(const AttentionMass&) = delete;
  AttentionMass& operator=(const AttentionMass&) = delete;

  /// log of the sum over heads of p, [queries of the block, visible entries or, with lists, places of the list]; -inf
  /// where a query does not see the entry or the place is unused.
  at::Tensor log_mass(const QueryBlock& block) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace asterism::ops
