#include "asterism/checkpoint/recoding.h"

#include <algorithm>
#include <cstring>

#include "asterism/core/error.h"
#include "asterism/ops/cpu/decode_kernel.h"
#include "asterism/ops/cpu/encode_kernel.h"
#include "asterism/ops/cpu/float_kernel.h"

namespace asterism::checkpoint {
namespace cpu = ops::cpu;

namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t kGroup = 32;

template <typename T>
const T* as(const std::byte* bytes) {
  return reinterpret_cast<const T*>(bytes);
}

template <typename T>
T* as(std::byte* bytes) {
  return reinterpret_cast<T*>(bytes);
}

template <typename S, typename T>
void decode_fp8(const MatrixBytes& in, int64_t rows, int64_t columns, T* out) {
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  for (int64_t row = 0; row < rows; ++row) {
    const S* scales = as<S>(in.scale) + row / kBlock * blocks;
    cpu::decode_fp8_row(as<uint8_t>(in.data) + row * columns, scales, 0, columns, out + row * columns);
  }
}

template <typename T>
void decode_fp4(const MatrixBytes& in, int64_t rows, int64_t columns, T* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = row * columns;
    cpu::decode_fp4_row(as<uint8_t>(in.data) + first / 2, as<uint8_t>(in.scale) + first / kGroup, 0, columns,
                        out + first);
  }
}

/// T is float, or uint16_t for bf16.
template <typename T>
void decode_to(const Form& form, const MatrixBytes& in, int64_t rows, int64_t columns, T* out) {
  if (form.coding == Form::Coding::kFp4) {
    decode_fp4(in, rows, columns, out);
  } else {
    const auto run = form.scale == at::kFloat ? decode_fp8<float, T> : decode_fp8<uint8_t, T>;
    run(in, rows, columns, out);
  }
}

/// Whether bf16 holds every value because no scale is near the ends of its range: the smallest code is 2^-9, the
/// largest 448, and bf16 goes from 2^-133 to almost 2^128.
bool fits_bf16(const Form& form, const MatrixBytes& in, int64_t rows, int64_t columns) {
  if (!form.is_coded() || form.scale == at::kFloat) return false;
  const auto* scales = as<uint8_t>(in.scale);
  return std::all_of(scales, scales + scale_bytes(form, rows, columns),
                     [](uint8_t scale) { return scale >= 3 && scale <= 240; });
}

void decode_plain(at::ScalarType dtype, const std::byte* in, int64_t count, float* out) {
  switch (dtype) {
    case at::kFloat:
      std::memcpy(out, in, count * sizeof(float));
      return;
    case at::kBFloat16:
      cpu::bf16_to_float(as<uint16_t>(in), count, out);
      return;
    case at::kDouble:
      std::copy_n(as<double>(in), count, out);
      return;
    case at::kHalf:
      cpu::half_to_float(as<uint16_t>(in), count, out);
      return;
    default:
      run_error("values of type ", safetensors_dtype_name(dtype), " cannot be converted, expected F32, BF16 or F16");
  }
}

void encode_plain(at::ScalarType dtype, const float* in, int64_t count, std::byte* out) {
  switch (dtype) {
    case at::kFloat:
      std::memcpy(out, in, count * sizeof(float));
      return;
    case at::kBFloat16:
      cpu::float_to_bf16(in, count, as<uint16_t>(out));
      return;
    case at::kHalf:
      cpu::float_to_half(in, count, as<uint16_t>(out));
      return;
    default:
      run_error("values cannot become ", safetensors_dtype_name(dtype), ", expected F32, BF16 or F16");
  }
}

}  // namespace

RecodingLoss& RecodingLoss::operator+=(const RecodingLoss& other) {
  values += other.values;
  changed += other.changed;
  vanished += other.vanished;
  largest_relative = std::max(largest_relative, other.largest_relative);
  return *this;
}

uint64_t data_bytes(const Form& form, int64_t rows, int64_t columns) {
  const auto stored = form.stored_shape({rows, columns});
  return static_cast<uint64_t>(stored[0] * stored[1]) * c10::elementSize(form.dtype);
}

uint64_t scale_bytes(const Form& form, int64_t rows, int64_t columns) {
  if (!form.is_coded()) return 0;
  const auto shape = form.scale_shape({rows, columns});
  return static_cast<uint64_t>(shape[0] * shape[1]) * c10::elementSize(form.scale);
}

bool is_lossless(const Form& from, const Form& to) {
  return from == to || (!to.is_coded() && to.dtype == at::kFloat && from.dtype != at::kDouble);
}

void Recoder::decode(const Form& form, const MatrixBytes& in, int64_t rows, int64_t columns, float* out) {
  if (form.is_coded()) {
    decode_to(form, in, rows, columns, out);
  } else {
    decode_plain(form.dtype, in.data, rows * columns, out);
  }
}

void Recoder::encode(const float* values, const Form& to, std::byte* data, std::byte* scale, int64_t rows,
                     int64_t columns) {
  auto* codes = as<uint8_t>(data);
  bool finite = true;
  if (to.coding == Form::Coding::kFp4) {
    finite = cpu::encode_fp4_rows(values, rows, columns, codes, as<uint8_t>(scale));
  } else if (to.coding == Form::Coding::kFp8) {
    finite = to.scale == at::kFloat ? cpu::encode_fp8_rows(values, rows, columns, codes, as<float>(scale))
                                    : cpu::encode_fp8_rows(values, rows, columns, codes, as<uint8_t>(scale));
  } else {
    encode_plain(to.dtype, values, rows * columns, data);
  }
  if (!finite) run_error("holds NaN or an infinity, which ", to.text(), " cannot hold; the checkpoint is damaged");
}

RecodingLoss Recoder::recode(const Form& from, const MatrixBytes& in, const Form& to, std::byte* data, std::byte* scale,
                             int64_t rows, int64_t columns, bool measure) {
  const int64_t count = rows * columns;
  if (from == to) {
    std::memcpy(data, in.data, data_bytes(to, rows, columns));
    if (to.is_coded()) std::memcpy(scale, in.scale, scale_bytes(to, rows, columns));
    return {.values = count};
  }
  if (to == Form::plain(at::kBFloat16) && fits_bf16(from, in, rows, columns)) {
    decode_to(from, in, rows, columns, as<uint16_t>(data));
    return {.values = count};
  }
  if (from.coding == Form::Coding::kFp4 && to == Form::fp8()) {
    const int64_t changed = cpu::recode_fp4_rows(as<uint8_t>(in.data), as<uint8_t>(in.scale), rows, columns,
                                                 as<uint8_t>(data), as<uint8_t>(scale));
    if (changed < 0) run_error("holds a scale that is NaN; the checkpoint is damaged");
    if (changed == 0) return {.values = count};
    values_.resize(std::max<size_t>(values_.size(), count));
    decode(from, in, rows, columns, values_.data());
  } else {
    values_.resize(std::max<size_t>(values_.size(), count));
    decode(from, in, rows, columns, values_.data());
    encode(values_.data(), to, data, scale, rows, columns);
  }
  if (!measure || is_lossless(from, to)) return {.values = count};
  again_.resize(values_.size());
  decode(to, {data, scale}, rows, columns, again_.data());
  const cpu::ValueChanges changes = cpu::value_changes(values_.data(), again_.data(), count);
  return {count, changes.changed, changes.vanished, static_cast<double>(changes.largest_relative)};
}

}  // namespace asterism::checkpoint
