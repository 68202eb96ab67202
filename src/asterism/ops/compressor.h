#pragma once

#include <ATen/ATen.h>

#include "asterism/ops/documents.h"
#include "asterism/ops/rope.h"

namespace asterism::ops {

/// Compressed entries of a layer (model-spec 2.4, backward 2.11) from the projections u = x Wkvᵀ and x Wgateᵀ of the
/// layer's input, all fp32 (fp64) in every mode. g = x Wgateᵀ + ape[position mod ratio].
///   plain: entry w = sum over the window's tokens of softmax(g) * u, per channel
///   overlap: one softmax over 2 * ratio slots: the previous window's tokens with channels 0 .. c-1 of u and g, and the
///   window's own with channels c .. 2c-1; the first window of a document has only its own slots
///   out = RoPE(RMSNorm(entry; norm), position of the window's first token)
/// u_TJ, gate_TJ [T, co * c] with co = 2 when overlap, else 1; ape [ratio, co * c]; norm [c]; table at
/// windows.position_C. Returns [C, c] in the type of u, C = windows.num_entries(), which may be 0.
/// Differentiable in u, gate, ape and norm, also when C is 0 (gradients are zeros, never undefined).
at::Tensor compress(const at::Tensor& u_TJ, const at::Tensor& gate_TJ, const at::Tensor& ape, const at::Tensor& norm,
                    const Documents& documents, const Windows& windows, bool overlap, const RopeTable& table_C,
                    double eps);

}  // namespace asterism::ops
