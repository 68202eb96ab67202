#pragma once

#include <ATen/ATen.h>

#include "asterism/ops/packed_matrix.h"

namespace asterism::ops {

/// Rows first .. first + count - 1 of the activations, which meet matrix number `matrix` of a stack.
struct RowRange {
  int64_t matrix, first, count;
  at::Tensor of(const at::Tensor& rows) const { return rows.narrow(0, first, count); }
};

/// Products with packed weights. The work is cut into tasks of at most 512 rows and a tile of the weight: 128 rows of W
/// (matmul_nt) or 128 of its columns (matmul_nn), fewer when the tile would have more than 2^18 values, but at least
/// 16. A task decodes its tile into the thread's scratch, which is kept for the next task, and makes the whole sum of
/// its results in one product. So there is never a decoded copy of a matrix: the scratch of a thread is 1 MiB in fp32,
/// or 16 rows or columns where those are longer than 16384.
///
/// The compute type is that of matmul.h for an x of this type; values are decoded to it. A task runs on one thread and
/// how tasks are cut depends on the shapes only: the same bits for any number of threads.
///
/// Every row of x belongs to exactly one range. Not differentiable.

/// y_RN: for the rows of every range x W_mᵀ. x_RK [R, K] of any strides, result in the type of x.
at::Tensor packed_matmul_nt(const at::Tensor& x_RK, const PackedMatrix& w, at::ArrayRef<RowRange> ranges);
/// y_RK: for the rows of every range x W_m. x_RN [R, N] of any strides, result in the type of x.
at::Tensor packed_matmul_nn(const at::Tensor& x_RN, const PackedMatrix& w, at::ArrayRef<RowRange> ranges);

}  // namespace asterism::ops
