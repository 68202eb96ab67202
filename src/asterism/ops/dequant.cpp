#include "asterism/ops/dequant.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "asterism/ops/cpu/decode_kernel.h"
#include "asterism/ops/cpu/float_codes.h"

namespace asterism::ops {

namespace {

constexpr int64_t kFp8Block = 128;
constexpr int64_t kFp4Block = 32;
constexpr int64_t kGrainElements = 16384;

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t grain_rows(int64_t columns) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, columns));
}

/// What kernels write: the bits of a bf16, or fp32.
uint16_t* elements(const at::Tensor& out, uint16_t) {
  return reinterpret_cast<uint16_t*>(out.mutable_data_ptr<at::BFloat16>());
}
float* elements(const at::Tensor& out, float) {
  return out.mutable_data_ptr<float>();
}

template <typename T, typename S>
void decode_fp8(const at::Tensor& bytes_NK, const at::Tensor& scale, const at::Tensor& out_NK) {
  const int64_t columns = bytes_NK.size(1), scale_columns = scale.size(1);
  const uint8_t* bytes = bytes_NK.const_data_ptr<uint8_t>();
  const S* scales = scale.const_data_ptr<S>();
  T* out = elements(out_NK, T{});
  at::parallel_for(0, bytes_NK.size(0), grain_rows(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const S* row_scales = scales + row / kFp8Block * scale_columns;
      cpu::decode_fp8_row(bytes + row * columns, row_scales, 0, columns, out + row * columns);
    }
  });
}

template <typename T>
void decode_fp4(const at::Tensor& bytes, const at::Tensor& scale, const at::Tensor& out_NK) {
  const int64_t columns = out_NK.size(1);
  const uint8_t* in = bytes.const_data_ptr<uint8_t>();
  const uint8_t* scales = scale.const_data_ptr<uint8_t>();
  T* out = elements(out_NK, T{});
  at::parallel_for(0, bytes.size(0), grain_rows(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t first = row * columns;
      cpu::decode_fp4_row(in + first / 2, scales + first / kFp4Block, 0, columns, out + first);
    }
  });
}

void check_types(const char* op, const at::Tensor& bytes, at::ScalarType out) {
  TORCH_CHECK(bytes.dim() == 2 && bytes.scalar_type() == at::kByte, "[", op, "] bytes must be 2-D uint8, got ",
              bytes.sizes(), " ", bytes.scalar_type());
  TORCH_CHECK(out == at::kFloat || out == at::kBFloat16, "[", op, "] results are fp32 or bf16, asked for ", out);
}

}  // namespace

at::Tensor dequant_fp8(const at::Tensor& bytes_NK, const at::Tensor& scale, at::ScalarType out) {
  check_types("dequant_fp8", bytes_NK, out);
  TORCH_CHECK(scale.scalar_type() == at::kByte || scale.scalar_type() == at::kFloat,
              "[dequant_fp8] scale must be uint8 (e8m0) or fp32, got ", scale.scalar_type());
  const int64_t rows = ceil_divide(bytes_NK.size(0), kFp8Block), columns = ceil_divide(bytes_NK.size(1), kFp8Block);
  TORCH_CHECK(scale.dim() == 2 && scale.size(0) == rows && scale.size(1) == columns, "[dequant_fp8] a weight of ",
              bytes_NK.sizes(), " needs one scale per 128 x 128 block, [", rows, ", ", columns, "], got ",
              scale.sizes());
  at::Tensor result = at::empty(bytes_NK.sizes(), out);
  const bool e8m0 = scale.scalar_type() == at::kByte;
  const auto run = out == at::kFloat ? (e8m0 ? decode_fp8<float, uint8_t> : decode_fp8<float, float>)
                                     : (e8m0 ? decode_fp8<uint16_t, uint8_t> : decode_fp8<uint16_t, float>);
  run(bytes_NK.contiguous(), scale.contiguous(), result);
  return result;
}

at::Tensor dequant_fp4(const at::Tensor& bytes, const at::Tensor& scale, at::ScalarType out) {
  check_types("dequant_fp4", bytes, out);
  const int64_t rows = bytes.size(0), columns = 2 * bytes.size(1);
  TORCH_CHECK(columns % kFp4Block == 0, "[dequant_fp4] the number of columns must be a multiple of 32, got ", columns);
  TORCH_CHECK(scale.scalar_type() == at::kByte, "[dequant_fp4] scale must be uint8 (e8m0), got ", scale.scalar_type());
  TORCH_CHECK(scale.dim() == 2 && scale.size(0) == rows && scale.size(1) == columns / kFp4Block,
              "[dequant_fp4] bytes of ", bytes.sizes(), " need one scale per 32 columns, [", rows, ", ",
              columns / kFp4Block, "], got ", scale.sizes());
  at::Tensor result = at::empty({rows, columns}, out);
  const auto run = out == at::kFloat ? decode_fp4<float> : decode_fp4<uint16_t>;
  run(bytes.contiguous(), scale.contiguous(), result);
  return result;
}

float decode_e8m0(uint8_t byte) {
  return cpu::e8m0_value(byte);
}

float decode_e4m3(uint8_t byte) {
  float value = 0.0F;
  const float one = 1.0F;
  cpu::decode_fp8_row(&byte, &one, 0, 1, &value);
  return value;
}

}  // namespace asterism::ops
