#pragma once

#include <ATen/ATen.h>

namespace asterism::ops {

/// A matrix in one of the released formats; what dequant_fp8 and dequant_fp4 (ops/dequant.h) take.
struct QuantizedMatrix {
  at::Tensor bytes;  // uint8: [N, K] FP8 or [N, K / 2] FP4
  at::Tensor scale;  // uint8 (e8m0) or fp32
};

enum class ScaleType { kE8m0, kFp32 };

/// FP8 with one scale per 128 x 128 block (model-spec 6.2). w_NK is floating; what was FP8 with scales of the same type
/// keeps its values. The rounding rules are those of ops/cpu/encode_kernel.h; an error when a value is not finite.
QuantizedMatrix quantize_fp8(const at::Tensor& w_NK, ScaleType scale_type);

/// FP4 with one e8m0 scale per 32 columns (6.3); K is a multiple of 32. What was FP4 keeps its values.
QuantizedMatrix quantize_fp4(const at::Tensor& w_NK);

struct RecodedMatrix {
  QuantizedMatrix matrix;
  int64_t changed = 0;  // values that FP8 cannot hold: 0 unless FP4 scales within a block differ by more than 2^14
};

/// FP4 as FP8 with e8m0 scales, without rounding where the format allows it (6.3).
RecodedMatrix recode_fp4_as_fp8(const QuantizedMatrix& fp4);

}  // namespace asterism::ops
