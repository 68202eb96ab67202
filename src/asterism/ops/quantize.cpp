#include "asterism/ops/quantize.h"

#include <ATen/Parallel.h>

#include <atomic>

#include "asterism/ops/cpu/encode_kernel.h"
#include "asterism/ops/dense.h"

namespace asterism::ops {

namespace {

constexpr int64_t kBlockRows = 128;

int64_t blocks_of(int64_t size) {
  return (size + kBlockRows - 1) / kBlockRows;
}

/// Calls visit(first row, number of rows) for strips of 128 rows, in parallel: a block never has two threads.
template <typename Visit>
void for_each_strip(int64_t rows, const Visit& visit) {
  at::parallel_for(0, blocks_of(rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t row = strip * kBlockRows;
      visit(row, std::min(kBlockRows, rows - row));
    }
  });
}

void check_matrix(const char* op, const at::Tensor& w_NK) {
  TORCH_CHECK(w_NK.dim() == 2 && w_NK.is_floating_point(), "[", op, "] expected a floating matrix, got ", w_NK.sizes(),
              " ", w_NK.scalar_type());
}

template <typename S>
void encode_fp8(const at::Tensor& w_NK, QuantizedMatrix& result) {
  const int64_t rows = w_NK.size(0), columns = w_NK.size(1), scale_columns = blocks_of(columns);
  const float* in = w_NK.const_data_ptr<float>();
  auto* out = result.bytes.mutable_data_ptr<uint8_t>();
  S* scales = result.scale.mutable_data_ptr<S>();
  std::atomic<bool> finite = true;
  for_each_strip(rows, [&](int64_t row, int64_t count) {
    S* strip_scales = scales + row / kBlockRows * scale_columns;
    if (!cpu::encode_fp8_rows(in + row * columns, count, columns, out + row * columns, strip_scales)) finite = false;
  });
  TORCH_CHECK(finite, "[quantize_fp8] values must be finite, got NaN or an infinity");
}

}  // namespace

QuantizedMatrix quantize_fp8(const at::Tensor& w_NK, ScaleType scale_type) {
  check_matrix("quantize_fp8", w_NK);
  const at::ScalarType scale = scale_type == ScaleType::kE8m0 ? at::kByte : at::kFloat;
  QuantizedMatrix result{at::empty(w_NK.sizes(), at::kByte),
                         at::empty({blocks_of(w_NK.size(0)), blocks_of(w_NK.size(1))}, scale)};
  const auto run = scale_type == ScaleType::kE8m0 ? encode_fp8<uint8_t> : encode_fp8<float>;
  run(dense(w_NK, at::kFloat), result);
  return result;
}

QuantizedMatrix quantize_fp4(const at::Tensor& w_NK) {
  check_matrix("quantize_fp4", w_NK);
  const int64_t rows = w_NK.size(0), columns = w_NK.size(1);
  TORCH_CHECK(columns % 32 == 0, "[quantize_fp4] the number of columns must be a multiple of 32, got ", columns);
  const at::Tensor values = dense(w_NK, at::kFloat);
  QuantizedMatrix result{at::empty({rows, columns / 2}, at::kByte), at::empty({rows, columns / 32}, at::kByte)};
  const float* in = values.const_data_ptr<float>();
  auto* out = result.bytes.mutable_data_ptr<uint8_t>();
  auto* scales = result.scale.mutable_data_ptr<uint8_t>();
  std::atomic<bool> finite = true;
  for_each_strip(rows, [&](int64_t row, int64_t count) {
    const int64_t first = row * columns;
    if (!cpu::encode_fp4_rows(in + first, count, columns, out + first / 2, scales + first / 32)) finite = false;
  });
  TORCH_CHECK(finite, "[quantize_fp4] values must be finite, got NaN or an infinity");
  return result;
}

RecodedMatrix recode_fp4_as_fp8(const QuantizedMatrix& fp4) {
  const at::Tensor bytes = fp4.bytes.contiguous(), scale = fp4.scale.contiguous();
  TORCH_CHECK(bytes.dim() == 2 && bytes.scalar_type() == at::kByte && scale.scalar_type() == at::kByte,
              "[recode_fp4_as_fp8] expected uint8 bytes and e8m0 scales, got ", bytes.scalar_type(), " and ",
              scale.scalar_type());
  const int64_t rows = bytes.size(0), columns = 2 * bytes.size(1);
  TORCH_CHECK(columns % 32 == 0 && scale.dim() == 2 && scale.size(0) == rows && scale.size(1) == columns / 32,
              "[recode_fp4_as_fp8] expected one scale per 32 columns, got ", scale.sizes(), " for ", rows, " x ",
              columns);
  RecodedMatrix result;
  result.matrix = {at::empty({rows, columns}, at::kByte), at::empty({blocks_of(rows), blocks_of(columns)}, at::kByte)};
  const auto* in = bytes.const_data_ptr<uint8_t>();
  const auto* in_scales = scale.const_data_ptr<uint8_t>();
  auto* out = result.matrix.bytes.mutable_data_ptr<uint8_t>();
  auto* out_scales = result.matrix.scale.mutable_data_ptr<uint8_t>();
  std::atomic<int64_t> changed = 0;
  std::atomic<bool> nan = false;
  for_each_strip(rows, [&](int64_t row, int64_t count) {
    const int64_t first = row * columns;
    uint8_t* strip_scales = out_scales + row / kBlockRows * blocks_of(columns);
    const int64_t strip =
        cpu::recode_fp4_rows(in + first / 2, in_scales + first / 32, count, columns, out + first, strip_scales);
    if (strip < 0) nan = true;
    changed += std::max<int64_t>(strip, 0);
  });
  TORCH_CHECK(!nan, "[recode_fp4_as_fp8] scales must be numbers, got NaN (0xFF)");
  result.changed = changed;
  return result;
}

}  // namespace asterism::ops
