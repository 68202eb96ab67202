#pragma once

#include <ATen/ATen.h>

namespace asterism::ops {

/// Decoding of the released weight formats (model-spec 6.2, 6.3). Bytes are uint8; results fp32 or bf16 (one rounding).

/// W[r, c] = e4m3(bytes[r, c]) * scale[r / 128, c / 128]; edge blocks partial. bytes [N, K] uint8, scale
/// [ceil(N / 128), ceil(K / 128)] as uint8 (e8m0 exponents) or fp32.
at::Tensor dequant_fp8(const at::Tensor& bytes_NK, const at::Tensor& scale, at::ScalarType out);

/// Two e2m1 values per byte, low nibble first; one e8m0 scale per 32 columns. bytes [N, K / 2] uint8, scale [N, K / 32]
/// uint8 -> [N, K]. Exact in bf16.
at::Tensor dequant_fp4(const at::Tensor& bytes, const at::Tensor& scale, at::ScalarType out);

/// 2^(byte - 127); byte 0 is 2^-127 (subnormal in fp32), 255 is NaN.
float decode_e8m0(uint8_t byte);
/// 1-4-3, bias 7, largest 448, no infinities, NaN 0x7F and 0xFF.
float decode_e4m3(uint8_t byte);

}  // namespace asterism::ops
