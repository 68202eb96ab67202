#pragma once

#include "asterism/ops/attention_inputs.h"

namespace asterism::ops {

/// Whether fused_attention computes these inputs: fp32 or bf16 on a CPU that has its kernels.
bool can_fuse_attention(const AttentionInputs& in);

/// sparse_attention by the kernels of cpu/attention_kernel.h. Saved for the backward: inputs, o (turned back), lse.
AttentionOutputs fused_attention(const AttentionInputs& in);
AttentionGradients fused_attention_backward(const AttentionInputs& in, const AttentionOutputs& out,
                                            const at::Tensor& grad_o_THP, const WantedGradients& wanted);

}  // namespace asterism::ops
