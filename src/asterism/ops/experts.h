#pragma once

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "asterism/ops/linear.h"

namespace asterism::ops {

/// Which rows go to which expert, in a stable order: rows of one expert lie together, in (token, slot) order. Keyed by
/// (token, slot), never by (token, expert): a hash row may name one expert twice.
struct Dispatch {
  int64_t num_experts = 0;
  std::vector<int64_t> offsets;  // [E + 1], rows of expert e are offsets[e] .. offsets[e + 1] - 1
  at::Tensor token_R;            // int64 [R], R = T * K: token of a row
  at::Tensor slot_R;             // int64 [R]: flat index token * K + slot of a row
  at::Tensor row_TK;             // int64 [T, K]: row of a slot, the inverse of slot_R
};

/// expert_TK int64 [T, K] with values 0 .. E-1 (otherwise an error that names the value). T may be 0.
Dispatch make_dispatch(const at::Tensor& expert_TK, int64_t num_experts);

/// Sum over slots of rows_RD[row_TK[t, slot]], in slot order and in fp32 (fp64): [T, D] in the type of the rows.
at::Tensor combine_rows(const at::Tensor& rows_RD, const at::Tensor& row_TK);

/// Low-rank updates of all experts of one packed matrix, in PEFT's layout (golden/hf README section 5):
/// A [E * r, in]: rows e * r .. belong to expert e; B [out, r * E]: columns e, e + E, e + 2 E, ... belong to expert e.
using ExpertLora = LoraPair;

/// The routed experts (4.2): y[t] = sum over slots, in slot order, of weight[t, slot] *
/// down_e(swiglu(gate_up_e(x[t]))). The weight multiplies the activation before the down projection, as the reference
/// program does. x_TD [T, D] in the compute type; weight_TK [T, K] fp32 (fp64); gate_up [E, 2 I, D], down [E, D, I] in
/// storage type or packed. Returns [T, D] in the type of x, summed in fp32 (fp64) in slot order: bitwise repeatable.
/// Differentiable in x, weight, plain gate_up and down, and the four LoRA matrices; experts without rows get zero
/// gradients. Packed experts are decoded tile by tile in both passes (ops/packed_matmul.h), and only those with rows.
/// `kept`: the gate_up output of all rows and y (kept_results.h).
at::Tensor grouped_experts(const at::Tensor& x_TD, const at::Tensor& weight_TK, const Dispatch& dispatch,
                           const Matrix& gate_up, const Matrix& down, double limit,
                           const std::optional<ExpertLora>& gate_up_lora, const std::optional<ExpertLora>& down_lora,
                           Kept* kept = nullptr);

}  // namespace asterism::ops
