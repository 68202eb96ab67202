#include "asterism/ops/column_sum.h"

#include <ATen/Parallel.h>

#include "asterism/ops/matmul.h"

namespace asterism::ops {

namespace {

constexpr int64_t kChunkRows = 128;

template <typename T>
void add_rows(const T* rows, int64_t num_rows, int64_t num_columns, T* sum) {
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t c = 0; c < num_columns; ++c) sum[c] += rows[r * num_columns + c];
  }
}

}  // namespace

at::Tensor column_sum(const at::Tensor& x_MN) {
  TORCH_CHECK(x_MN.dim() == 2, "[column_sum] a matrix is needed, got shape ", x_MN.sizes());
  const at::Tensor x = x_MN.to(sum_type(x_MN.scalar_type())).contiguous();
  const int64_t num_rows = x.size(0), num_columns = x.size(1);
  const int64_t num_chunks = (num_rows + kChunkRows - 1) / kChunkRows;
  at::Tensor partial = at::zeros({num_chunks, num_columns}, x.options());
  at::Tensor sum = at::zeros({num_columns}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "column_sum", [&] {
    const scalar_t* rows = x.const_data_ptr<scalar_t>();
    scalar_t* partial_sum = partial.mutable_data_ptr<scalar_t>();
    at::parallel_for(0, num_chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t first = chunk * kChunkRows, count = std::min(kChunkRows, num_rows - first);
        add_rows(rows + first * num_columns, count, num_columns, partial_sum + chunk * num_columns);
      }
    });
    add_rows(partial_sum, num_chunks, num_columns, sum.mutable_data_ptr<scalar_t>());
  });
  return sum;
}

}  // namespace asterism::ops
