#pragma once

#include "asterism/ops/cpu/gemm_kernel.h"

namespace asterism::ops::cpu {

/// Steps of the sum that are packed at a time: a panel of b then stays in the second cache.
constexpr int64_t kGemmSteps = 256;

/// What gemm_block asks of a level: one stretch of the sum of one term, steps first .. first + count of the summed
/// dimension, into fp32 rows.
struct GemmStretch {
  GemmMatrix a, b;
  int64_t rows, columns;
  int64_t first, count;
  float* c;
  int64_t c_stride;
  bool add;       // otherwise c is set
  void* scratch;  // gemm_scratch_bytes
};

constexpr int64_t kGemmScratchBytes =
    4 * (kGemmSteps * (kGemmColumns + kGemmColumnTile + kGemmRowTile) + kGemmRowTile * kGemmColumnTile);

#if defined(__x86_64__)
namespace isa_avx2 {
void gemm_stretch(const GemmStretch& stretch);
}
namespace isa_avx512 {
void gemm_stretch(const GemmStretch& stretch);
}
namespace isa_avx512_bf16 {
/// Both operands bf16.
void gemm_stretch(const GemmStretch& stretch);
}  // namespace isa_avx512_bf16
#endif

}  // namespace asterism::ops::cpu
