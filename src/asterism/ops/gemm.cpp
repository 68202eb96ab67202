#include "asterism/ops/gemm.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "asterism/ops/cpu/gemm_kernel.h"

namespace asterism::ops {

namespace {

bool is_narrow(const at::Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16;
}

bool has_kernel(const Product& product) {
  return cpu::has_gemm() && is_narrow(product.c);
}

// Sums in fp64 where the result is, in fp32 otherwise.
void run_in_library(const Product& product) {
  const at::ScalarType type = product.c.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor c = product.c, sum;
  for (const ProductTerm& term : product.terms) {
    const at::Tensor value = at::mm(term.a.to(type), term.b.to(type));
    sum = sum.defined() ? sum.add_(value) : value;
  }
  if (product.add) {
    c.add_(sum);
  } else {
    c.copy_(sum);
  }
}

// A block of one of the products.
struct GemmTask {
  const cpu::Gemm* gemm;
  cpu::GemmBlock block;
};

cpu::GemmMatrix matrix_of(const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 2 && is_narrow(x), "[gemm] matrices must be 2-D and fp32 or bf16, got ", x.sizes(), " ",
              x.scalar_type());
  const bool bf16 = x.scalar_type() == at::kBFloat16;
  return {.data = x.const_data_ptr(),
          .type = bf16 ? cpu::GemmType::kBf16 : cpu::GemmType::kFloat,
          .row_stride = x.stride(0),
          .column_stride = x.stride(1)};
}

cpu::Gemm gemm_of(const Product& product) {
  const at::Tensor& c = product.c;
  cpu::Gemm gemm;
  const cpu::GemmMatrix result = matrix_of(c);
  TORCH_CHECK(result.column_stride == 1 || c.size(1) <= 1, "[gemm] rows of the result must be contiguous");
  TORCH_CHECK(!product.add || result.type == cpu::GemmType::kFloat, "[gemm] only fp32 is added to");
  TORCH_CHECK(product.terms.size() <= std::size(gemm.terms), "[gemm] at most two terms, got ", product.terms.size());
  gemm.rows = c.size(0);
  gemm.columns = c.size(1);
  gemm.c = c.mutable_data_ptr();
  gemm.c_type = result.type;
  gemm.c_stride = c.stride(0);
  gemm.add = product.add;
  gemm.num_terms = 0;
  for (const ProductTerm& term : product.terms) {
    TORCH_CHECK(term.a.dim() == 2 && term.b.dim() == 2 && term.a.size(0) == gemm.rows &&
                    term.a.size(1) == term.b.size(0) && term.b.size(1) == gemm.columns,
                "[gemm] shapes do not fit: ", term.a.sizes(), " x ", term.b.sizes(), " -> ", c.sizes());
    gemm.terms[gemm.num_terms++] = {matrix_of(term.a), matrix_of(term.b), term.a.size(1)};
  }
  return gemm;
}

// Lengths of blocks: as large as caches allow, smaller while there are too few for the threads.
struct GemmBlockShape {
  int64_t rows = cpu::kGemmRows, columns = cpu::kGemmColumns;
};

int64_t num_blocks(const std::vector<cpu::Gemm>& gemms, const GemmBlockShape& shape) {
  int64_t count = 0;
  for (const cpu::Gemm& gemm : gemms) {
    count += (gemm.rows + shape.rows - 1) / shape.rows * ((gemm.columns + shape.columns - 1) / shape.columns);
  }
  return count;
}

GemmBlockShape shape_for(const std::vector<cpu::Gemm>& gemms, int64_t threads) {
  GemmBlockShape shape;
  while (threads > 1 && num_blocks(gemms, shape) < 4 * threads) {
    const bool fewer_rows = shape.rows >= 12 * cpu::kGemmRowTile;
    if (fewer_rows && shape.rows >= shape.columns) {
      shape.rows /= 2;
    } else if (shape.columns > cpu::kGemmColumnTile) {
      shape.columns /= 2;
    } else if (fewer_rows) {
      shape.rows /= 2;
    } else {
      break;
    }
  }
  return shape;
}

void add_tasks(const cpu::Gemm& gemm, const GemmBlockShape& shape, std::vector<GemmTask>& tasks) {
  for (int64_t column = 0; column < gemm.columns; column += shape.columns) {
    for (int64_t row = 0; row < gemm.rows; row += shape.rows) {
      tasks.push_back({&gemm,
                       {.first_row = row,
                        .rows = std::min(shape.rows, gemm.rows - row),
                        .first_column = column,
                        .columns = std::min(shape.columns, gemm.columns - column)}});
    }
  }
}

}  // namespace

void run_products(const std::vector<Product>& products) {
  std::vector<cpu::Gemm> gemms;
  for (const Product& product : products) {
    if (has_kernel(product)) {
      gemms.push_back(gemm_of(product));
    } else {
      run_in_library(product);
    }
  }
  const int64_t threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  const GemmBlockShape shape = shape_for(gemms, threads);
  std::vector<GemmTask> tasks;
  for (const cpu::Gemm& gemm : gemms) add_tasks(gemm, shape, tasks);
  std::atomic<size_t> next{0};
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < tasks.size(); i = next++) cpu::gemm_block(*tasks[i].gemm, tasks[i].block);
  });
}

}  // namespace asterism::ops
