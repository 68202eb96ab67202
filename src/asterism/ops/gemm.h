#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace asterism::ops {

/// One factor pair of a sum of products: a [M, K], b [K, N], fp32, bf16 or fp64, any strides.
struct ProductTerm {
  at::Tensor a, b;
};

/// c [M, N] = (or, with `add`, +=) a b + a2 b2: one or two terms, one sum. c is fp32, fp64 or bf16 (not added to), its
/// rows of unit stride; it may be a slice of a larger matrix and must share no memory with the factors.
struct Product {
  at::Tensor c;
  std::vector<ProductTerm> terms;
  bool add = false;
};

/// Computes all products, cut into blocks that the threads share: many small ones cost no more than one large one.
/// Sums are fp32; bf16 operands are multiplied as bf16 where both of a term are and the CPU can, otherwise widened.
/// Every number has the same bits for any number of threads, whatever the other rows and columns are. fp64, where sums
/// are fp64, and CPUs without the kernel (cpu/gemm_kernel.h) are left to the library, which promises neither.
/// Errors: shapes and types that do not fit.
void run_products(const std::vector<Product>& products);

}  // namespace asterism::ops
