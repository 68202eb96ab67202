#include "asterism/ops/cpu/gemm_kernel.h"

#include <algorithm>

#include "asterism/ops/cpu/float_kernel.h"
#include "asterism/ops/cpu/gemm_panels.h"
#include "asterism/ops/cpu/level.h"
#include "asterism/ops/cpu/scratch.h"

namespace asterism::ops::cpu {

namespace {

using StretchKernel = void (*)(const GemmStretch& stretch);

struct TermKernel {
  StretchKernel run = nullptr;
  int64_t numbers = kGemmSteps;  // of the summed dimension, a stretch
};

TermKernel kernel_of(const GemmTerm& term) {
#if defined(__x86_64__)
  const bool bf16 = term.a.type == GemmType::kBf16 && term.b.type == GemmType::kBf16;
  switch (level()) {
    case Level::kAvx512Bf16:
      if (bf16) return {isa_avx512_bf16::gemm_stretch, 2 * kGemmSteps};
      return {isa_avx512::gemm_stretch};
    case Level::kAvx512:
      return {isa_avx512::gemm_stretch};
    case Level::kAvx2:
      return {isa_avx2::gemm_stretch};
    case Level::kPortable:
      break;
  }
#endif
  (void)term;
  return {};
}

GemmMatrix shifted(GemmMatrix matrix, int64_t rows, int64_t columns) {
  const int64_t numbers = rows * matrix.row_stride + columns * matrix.column_stride;
  const int64_t size = matrix.type == GemmType::kBf16 ? 2 : 4;
  matrix.data = static_cast<const char*>(matrix.data) + numbers * size;
  return matrix;
}

}  // namespace

bool has_gemm() {
  return level() >= Level::kAvx2;
}

void gemm_block(const Gemm& gemm, const GemmBlock& block) {
  const bool rounds = gemm.c_type == GemmType::kBf16;
  const int64_t sums = rounds ? block.rows * block.columns : 0;
  auto* scratch = static_cast<char*>(thread_scratch(kGemmScratchBytes + sums * sizeof(float)));
  GemmStretch stretch{};
  stretch.rows = block.rows;
  stretch.columns = block.columns;
  stretch.scratch = scratch;
  if (rounds) {
    stretch.c = reinterpret_cast<float*>(scratch + kGemmScratchBytes);
    stretch.c_stride = block.columns;
  } else {
    stretch.c = static_cast<float*>(gemm.c) + block.first_row * gemm.c_stride + block.first_column;
    stretch.c_stride = gemm.c_stride;
  }
  stretch.add = gemm.add;
  for (int i = 0; i < gemm.num_terms; ++i) {
    const GemmTerm& term = gemm.terms[i];
    stretch.a = shifted(term.a, block.first_row, 0);
    stretch.b = shifted(term.b, 0, block.first_column);
    const TermKernel kernel = kernel_of(term);
    for (stretch.first = 0; stretch.first < term.depth; stretch.first += kernel.numbers) {
      stretch.count = std::min(kernel.numbers, term.depth - stretch.first);
      kernel.run(stretch);
      stretch.add = true;
    }
  }
  // No stretch at all: sums of nothing.
  for (int64_t r = 0; !stretch.add && r < block.rows; ++r) {
    std::fill_n(stretch.c + r * stretch.c_stride, block.columns, 0.0F);
  }
  for (int64_t r = 0; rounds && r < block.rows; ++r) {
    auto* row = static_cast<uint16_t*>(gemm.c) + (block.first_row + r) * gemm.c_stride + block.first_column;
    float_to_bf16(stretch.c + r * stretch.c_stride, block.columns, row);
  }
}

}  // namespace asterism::ops::cpu
