#include "asterism/checkpoint/value_edit.h"

#include <algorithm>
#include <cstring>

#include "asterism/core/error.h"
#include "asterism/ops/cpu/float_kernel.h"

namespace asterism::checkpoint {

namespace {

template <typename T>
void grow(std::vector<T>& buffer, int64_t count) {
  if (static_cast<int64_t>(buffer.size()) < count) buffer.resize(count);
}

void read_entries(at::ScalarType dtype, const std::byte* in, int64_t count, int64_t* out) {
  if (dtype == at::kLong) {
    std::memcpy(out, in, count * sizeof(int64_t));
  } else {
    TORCH_CHECK(dtype == at::kInt, "[value_edit] tables are I64 or I32, got ", dtype);
    std::copy_n(reinterpret_cast<const int32_t*>(in), count, out);
  }
}

void write_entries(at::ScalarType dtype, const int64_t* in, int64_t count, std::byte* out) {
  if (dtype == at::kLong) {
    std::memcpy(out, in, count * sizeof(int64_t));
  } else {
    TORCH_CHECK(dtype == at::kInt, "[value_edit] tables are I64 or I32, got ", dtype);
    std::copy_n(in, count, reinterpret_cast<int32_t*>(out));
  }
}

EditCounts count_changes(const float* without, const float* with, const float* change, int64_t count) {
  EditCounts counts;
  for (int64_t i = 0; i < count; ++i) {
    const double stored = static_cast<double>(with[i]) - static_cast<double>(without[i]);
    const double meant = change[i];
    counts.adapted += meant != 0.0 ? 1 : 0;
    counts.changed += stored != 0.0 ? 1 : 0;
    counts.along += stored * meant;
    counts.squared += meant * meant;
  }
  return counts;
}

}  // namespace

EditCounts& EditCounts::operator+=(const EditCounts& other) {
  adapted += other.adapted;
  changed += other.changed;
  along += other.along;
  squared += other.squared;
  return *this;
}

RecodingLoss EditingRecoder::recode(const ValueEdit& edit, const EditedRows& rows, const Form& from,
                                    const MatrixBytes& in, const Form& to, std::byte* data, std::byte* scale,
                                    EditCounts& counts) {
  const int64_t count = rows.count();
  for (std::vector<float>* buffer : {&values_, &change_, &without_, &with_}) grow(*buffer, count);
  Recoder::decode(from, in, rows.rows, rows.columns, values_.data());
  recoder_.recode(from, in, to, data, scale, rows.rows, rows.columns, /*measure=*/false);
  Recoder::decode(to, {data, scale}, rows.rows, rows.columns, without_.data());

  std::fill_n(change_.begin(), count, 0.0F);
  edit.apply(rows, values_.data(), change_.data());
  Recoder::encode(values_.data(), to, data, scale, rows.rows, rows.columns);
  Recoder::decode(to, {data, scale}, rows.rows, rows.columns, with_.data());
  counts += count_changes(without_.data(), with_.data(), change_.data(), count);
  const ops::cpu::ValueChanges rounded = ops::cpu::value_changes(values_.data(), with_.data(), count);
  return {count, rounded.changed, rounded.vanished, static_cast<double>(rounded.largest_relative)};
}

RecodingLoss EditingRecoder::recode_entries(const ValueEdit& edit, const EditedRows& rows, const Form& from,
                                            const std::byte* in, const Form& to, std::byte* data, EditCounts& counts) {
  const int64_t count = rows.count();
  grow(old_entries_, count);
  grow(new_entries_, count);
  read_entries(from.dtype, in, count, old_entries_.data());
  edit.replace_entries(rows, new_entries_.data());
  write_entries(to.dtype, new_entries_.data(), count, data);
  for (int64_t i = 0; i < count; ++i) {
    const bool differs = old_entries_[i] != new_entries_[i];
    counts.adapted += differs ? 1 : 0;
    counts.changed += differs ? 1 : 0;
  }
  return {.values = count};
}

}  // namespace asterism::checkpoint
