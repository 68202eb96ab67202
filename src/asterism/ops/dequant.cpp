#include "asterism/ops/dequant.h"

#include <ATen/Parallel.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace asterism::ops {

namespace {

constexpr int64_t kFp8Block = 128;
constexpr int64_t kFp4Block = 32;
constexpr int64_t kGrainElements = 16384;

const std::array<float, 256>& e4m3_table() {
  static const auto table = [] {
    std::array<float, 256> values{};
    for (int byte = 0; byte < 256; ++byte) values[byte] = decode_e4m3(static_cast<uint8_t>(byte));
    return values;
  }();
  return table;
}

const std::array<float, 16>& e2m1_table() {
  static const auto table = [] {
    std::array<float, 16> values{};
    for (int nibble = 0; nibble < 16; ++nibble) values[nibble] = decode_e2m1(static_cast<uint8_t>(nibble));
    return values;
  }();
  return table;
}

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

int64_t grain_rows(int64_t columns) {
  return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, columns));
}

at::Tensor decode_scale(const at::Tensor& scale) {
  if (scale.scalar_type() != at::kByte) return scale.contiguous();
  const at::Tensor bytes = scale.contiguous();
  at::Tensor out = at::empty(bytes.sizes(), at::kFloat);
  const uint8_t* in = bytes.const_data_ptr<uint8_t>();
  float* values = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < bytes.numel(); ++i) values[i] = decode_e8m0(in[i]);
  return out;
}

template <typename T>
void decode_fp8(const at::Tensor& bytes_NK, const at::Tensor& scale, const at::Tensor& out_NK) {
  const int64_t columns = bytes_NK.size(1), scale_columns = scale.size(1);
  const auto& table = e4m3_table();
  const uint8_t* bytes = bytes_NK.const_data_ptr<uint8_t>();
  const float* scales = scale.const_data_ptr<float>();
  T* out = out_NK.mutable_data_ptr<T>();
  at::parallel_for(0, bytes_NK.size(0), grain_rows(columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* row_scales = scales + row / kFp8Block * scale_columns;
      const uint8_t* in = bytes + row * columns;
      for (int64_t c = 0; c < columns; ++c) {
        out[row * columns + c] = static_cast<T>(table[in[c]] * row_scales[c / kFp8Block]);
      }
    }
  });
}

template <typename T>
void decode_fp4(const at::Tensor& bytes, const at::Tensor& scale, const at::Tensor& out_NK) {
  const int64_t row_bytes = bytes.size(1);
  const auto& table = e2m1_table();
  const uint8_t* in = bytes.const_data_ptr<uint8_t>();
  const float* scales = scale.const_data_ptr<float>();
  T* out = out_NK.mutable_data_ptr<T>();
  constexpr int64_t kScaleBytes = kFp4Block / 2;  // bytes that share a scale; a row is a whole number of them
  at::parallel_for(0, bytes.size(0), grain_rows(2 * row_bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * row_bytes; i < end * row_bytes; ++i) {
      const float factor = scales[i / kScaleBytes];
      out[2 * i] = static_cast<T>(table[in[i] & 15] * factor);
      out[2 * i + 1] = static_cast<T>(table[in[i] >> 4] * factor);
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
  const auto run = out == at::kFloat ? decode_fp8<float> : decode_fp8<at::BFloat16>;
  run(bytes_NK.contiguous(), decode_scale(scale), result);
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
  const auto run = out == at::kFloat ? decode_fp4<float> : decode_fp4<at::BFloat16>;
  run(bytes.contiguous(), decode_scale(scale), result);
  return result;
}

float decode_e8m0(uint8_t byte) {
  if (byte == 255) return std::numeric_limits<float>::quiet_NaN();
  if (byte == 0) return std::bit_cast<float>(uint32_t{0x00400000});  // the exponent field alone would give 0
  return std::bit_cast<float>(static_cast<uint32_t>(byte) << 23);
}

float decode_e4m3(uint8_t byte) {
  const int exponent = (byte >> 3) & 15, mantissa = byte & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (byte & 0x80) != 0 ? -magnitude : magnitude;
}

float decode_e2m1(uint8_t nibble) {
  constexpr std::array<float, 8> kMagnitudes = {0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float magnitude = kMagnitudes[nibble & 7];
  return (nibble & 8) != 0 ? -magnitude : magnitude;
}

}  // namespace asterism::ops
