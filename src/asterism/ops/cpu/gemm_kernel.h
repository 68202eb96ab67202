#pragma once

#include <cstdint>

namespace asterism::ops::cpu {

enum class GemmType : uint8_t { kFloat, kBf16 };

/// A matrix of any strides, counted in numbers.
struct GemmMatrix {
  const void* data = nullptr;
  GemmType type = GemmType::kFloat;
  int64_t row_stride = 0, column_stride = 0;
};

/// a [rows, depth] times b [depth, columns].
struct GemmTerm {
  GemmMatrix a, b;
  int64_t depth = 0;
};

/// c [rows, columns] = or += the sum of at most two products: a weight's and its low-rank update's go into one sum.
/// Sums are fp32; a term multiplies bf16 by bf16 natively where both are bf16 and the CPU can, and fp32 otherwise
/// (bf16 is widened on the way). Every number of c is summed in the order of the terms and of their depth: its bits
/// depend neither on the other rows and columns nor on the block or thread that computes it.
struct Gemm {
  int64_t rows = 0, columns = 0;
  GemmTerm terms[2];
  int num_terms = 1;
  void* c = nullptr;  // rows of unit stride; kBf16 is rounded once
  GemmType c_type = GemmType::kFloat;
  int64_t c_stride = 0;
  bool add = false;  // only with kFloat
};

/// A part of c.
struct GemmBlock {
  int64_t first_row, rows, first_column, columns;
};

/// The largest block that keeps what it reads within a core's caches.
constexpr int64_t kGemmRows = 576, kGemmColumns = 256;
/// Blocks are cut at multiples of these.
constexpr int64_t kGemmRowTile = 6, kGemmColumnTile = 64;

/// Whether this CPU, at its level, has the kernel: otherwise gemm_block may not be called.
bool has_gemm();

/// Computes one block of c. Different blocks may be computed at the same time.
void gemm_block(const Gemm& gemm, const GemmBlock& block);

}  // namespace asterism::ops::cpu
