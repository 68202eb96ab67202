#pragma once

#include <ATen/ATen.h>

#include <string>

#include "asterism/ops/gemm.h"

namespace asterism::ops {

/// Every matrix product of the engine goes through these functions or run_products (gemm.h), which they call: the
/// kernel is chosen from instruction set and dtype, never by timing, which would break bit reproducibility.
///
/// Operands are 2-D of any strides (transposed views are fine), fp64, fp32 or bf16; they may differ in dtype. Sums are
/// fp32 (fp64 for fp64). The result has the dtype of the first operand unless `out` says otherwise. On CPUs without
/// bf16 arithmetic bf16 operands are widened to fp32 first and the result is rounded once. Zero rows are fine.
/// Not differentiable.

/// x wᵀ: x_MK [M, K], w_NK [N, K] -> [M, N]
at::Tensor matmul_nt(const at::Tensor& x_MK, const at::Tensor& w_NK, std::optional<at::ScalarType> out = std::nullopt);
/// x w: x_MK [M, K], w_KN [K, N] -> [M, N]
at::Tensor matmul_nn(const at::Tensor& x_MK, const at::Tensor& w_KN, std::optional<at::ScalarType> out = std::nullopt);
/// xᵀ w: x_KM [K, M], w_KN [K, N] -> [M, N]; the gradient of a weight
at::Tensor matmul_tn(const at::Tensor& x_KM, const at::Tensor& w_KN, std::optional<at::ScalarType> out = std::nullopt);

/// dst_MN = x wᵀ, in place; all of one type, that of products. dst_MN may be a column slice of a wider matrix.
void matmul_nt_out(const at::Tensor& dst_MN, const at::Tensor& x_MK, const at::Tensor& w_NK);

/// Batched a b: a_BMK [B, M, K], b_BKN [B, K, N] -> [B, M, N], same rules.
at::Tensor matmul_batched(const at::Tensor& a_BMK, const at::Tensor& b_BKN);

/// dst_MN += a_MK b_KN, in place; dst fp32 or fp64, any strides; factors as in run_products.
void matmul_accumulate(const at::Tensor& dst_MN, const at::Tensor& a_MK, const at::Tensor& b_KN);

/// a [M, K] and b [K, N] as the products above convert them, for run_products with a result of the type of a.
ProductTerm factors_of(const at::Tensor& a, const at::Tensor& b);

/// The type in which sums, norms and softmaxes of tensors of `dtype` are made: fp64 for fp64, otherwise fp32.
at::ScalarType sum_type(at::ScalarType dtype);

/// The type to which the operands of a product are converted when x has type `dtype` and the weight is not fp64: bf16
/// only where the CPU multiplies it.
at::ScalarType product_type(at::ScalarType dtype);

/// Whether this CPU multiplies bf16 operands natively.
bool has_native_bf16();

/// The level of the kernel (cpu/level.h), "MKL" where the library multiplies, and whether bf16 is widened; for
/// --version and the run report.
std::string matmul_provider(at::ScalarType dtype);

}  // namespace asterism::ops
