#include "asterism/checkpoint/checkpoint_slices.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <optional>

#include "asterism/checkpoint/packed_weights.h"
#include "asterism/core/error.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using model::TensorRole;
using model::TensorSpec;

namespace {

constexpr int64_t kSliceStretchBytes = 1 << 20;
constexpr int64_t kScaleRows = 128;  // of FP8

std::byte* bytes_in(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.mutable_data_ptr());
}

ops::PackedFormat packed_format(const Form& form) {
  return form.coding == Form::Coding::kFp4 ? ops::PackedFormat::kFp4 : ops::PackedFormat::kFp8;
}

at::ScalarType scale_type(const Form& form) {
  return form.scale == at::kFloat ? at::kFloat : at::kByte;
}

// Elements begin .. begin + count - 1 of matrices of `size` elements each: calls `visit(matrix, first, offset, number)`
// for the part that lies in each, from several threads.
template <typename Visit>
void for_each_matrix(int64_t begin, int64_t count, int64_t size, const Visit& visit) {
  if (count == 0) return;
  const int64_t end = begin + count;
  at::parallel_for(begin / size, (end - 1) / size + 1, 1, [&](int64_t first_matrix, int64_t last_matrix) {
    for (int64_t m = first_matrix; m < last_matrix; ++m) {
      const int64_t first = std::max(begin, m * size), last = std::min(end, (m + 1) * size);
      visit(m, first - m * size, first - begin, last - first);
    }
  });
}

// Rows of a coded matrix as their bytes lie in memory. The scales begin with the block of the first row.
at::Tensor decode_rows(const Form& form, const at::Tensor& codes, const at::Tensor& scales, int64_t first_row,
                       at::ScalarType type) {
  const bool fp8 = form.coding == Form::Coding::kFp8;
  const ops::PackedMatrix rows{.format = packed_format(form),
                               .codes = codes,
                               .scales = scales,
                               .parts = 1,
                               .first_row = fp8 ? first_row % kScaleRows : 0};
  return rows.decode(type);
}

// Rows first .. first + count - 1 of a matrix of the files.
at::Tensor decode_stored(const StoredPlace& place, int64_t first, int64_t count, int64_t columns, at::ScalarType type) {
  const int64_t block_rows = place.form.coding == Form::Coding::kFp8 ? kScaleRows : 1;
  const int64_t block = first / block_rows, blocks = (first + count - 1) / block_rows - block + 1;
  const auto code_width = static_cast<int64_t>(data_bytes(place.form, 1, columns));
  const auto scale_width = static_cast<int64_t>(scale_bytes(place.form, 1, columns));
  const at::Tensor codes = at::empty({count, code_width}, at::kByte);
  const int64_t scale_columns = scale_width / static_cast<int64_t>(c10::elementSize(scale_type(place.form)));
  const at::Tensor scales = at::empty({blocks, scale_columns}, scale_type(place.form));
  place.data_reader->read(bytes_in(codes), codes.nbytes(), place.data + first * code_width);
  place.scale_reader->read(bytes_in(scales), scales.nbytes(), place.scale + block * scale_width);
  return decode_rows(place.form, codes, scales, first, type);
}

}  // namespace

CheckpointSlices::CheckpointSlices(const fs::path& folder, const model::Config& config, const ReadOptions& options)
    : num_experts_(config.num_experts),
      config_(config),
      options_(options),
      bound_(bind_checkpoint(folder, config, /*equal_experts=*/!options.matrix_dtype)),
      bytes_(bound_.source) {
  for (const BoundTensor& bound : bound_.tensors) tensors_[bound.spec.name] = kept(bound);
  if (!options.packed) return;
  model::Weights none;
  model::for_each_projection(config, none, [&](const TensorSpec& spec, model::Projection&) {
    Kept& tensor = tensors_.at(spec.name);
    tensor.form = kept_form(*tensor.bound, options.storage);
    tensor.packed = tensor.form.is_coded();
    if (tensor.packed) check_packable(bound_.source, *tensor.bound, tensor.form);
  });
}

CheckpointSlices::Kept CheckpointSlices::kept(const BoundTensor& bound) const {
  Kept kept{.bound = &bound, .type = kept_type(bound, options_)};
  const std::vector<int64_t>& shape = bound.spec.shape;
  kept.columns = shape.back();
  if (is_packed_experts(bound.spec.name)) {
    kept.parts = static_cast<int64_t>(packed_matrices(bound.spec.name).size());
    kept.matrices = shape[0] * kept.parts;
    kept.rows = shape[1] / kept.parts;
  } else {
    kept.rows = c10::multiply_integers(shape) / std::max<int64_t>(1, kept.columns);
  }
  return kept;
}

model::Weights CheckpointSlices::outlines() const {
  model::Weights weights;
  model::for_each_projection(config_, weights, [&](const TensorSpec& spec, model::Projection& projection) {
    const Kept& tensor = tensors_.at(spec.name);
    if (!tensor.packed) return;
    projection.weight = ops::make_packed(
        packed_format(tensor.form), model::outline(tensor.form.stored_shape(spec.shape), at::kByte),
        model::outline(tensor.form.scale_shape(spec.shape, tensor.parts), scale_type(tensor.form)), tensor.parts);
  });
  model::for_each_tensor(config_, weights, [&](const TensorSpec& spec, at::Tensor& slot) {
    const Kept& tensor = tensors_.at(spec.name);
    if (!tensor.packed) slot = model::outline(spec.shape, tensor.type);
  });
  return weights;
}

StoredPlace CheckpointSlices::place_of(const Kept& kept, int64_t matrix) const {
  const BoundTensor& bound = *kept.bound;
  if (bound.whole != nullptr) return bytes_.place(*bound.whole, matrix, kept.rows, kept.columns);
  const auto order = packed_matrices(bound.spec.name);
  const StoredTensor* stored = bound.of_expert.at({matrix / kept.parts, order[matrix % kept.parts]});
  return bytes_.place(*stored, 0, kept.rows, kept.columns);
}

CheckpointSlices::Recoded CheckpointSlices::recode(const Kept& kept, int64_t matrix, bool count) {
  const StoredPlace place = place_of(kept, matrix);
  const auto bytes = [](uint64_t number) { return at::empty({static_cast<int64_t>(number)}, at::kByte); };
  const at::Tensor data = bytes(data_bytes(place.form, kept.rows, kept.columns)),
                   scale = bytes(scale_bytes(place.form, kept.rows, kept.columns));
  Recoded recoded{bytes(data_bytes(kept.form, kept.rows, kept.columns)),
                  bytes(scale_bytes(kept.form, kept.rows, kept.columns))};
  place.read({.row = 0, .rows = kept.rows, .columns = kept.columns}, bytes_in(data), bytes_in(scale));
  RecodingLoss loss;
  try {
    loss = Recoder().recode(place.form, {bytes_in(data), bytes_in(scale)}, kept.form, bytes_in(recoded.codes),
                            bytes_in(recoded.scales), kept.rows, kept.columns, /*measure=*/true);
  } catch (const RunError& error) {
    run_error(place.file.string(), ": tensor '", place.name, "' ", error.what());
  }
  if (!count) return recoded;
  const std::lock_guard lock(mutex_);
  rounded_[is_packed_experts(kept.bound->spec.name) ? 1 : 0] += loss;
  return recoded;
}

CheckpointSlices::Recoded CheckpointSlices::recoded(const Kept& kept, int64_t matrix, bool count, bool to_end) {
  const std::string& name = kept.bound->spec.name;
  Recoded result;
  {
    const std::lock_guard lock(mutex_);
    if (last_name_ == name && last_matrix_ == matrix) result = last_;
  }
  if (!result.codes.defined()) result = recode(kept, matrix, count);
  const std::lock_guard lock(mutex_);
  last_name_ = name;
  last_matrix_ = to_end ? -1 : matrix;
  last_ = to_end ? Recoded() : result;
  return result;
}

void CheckpointSlices::read_codes(const Kept& kept, int64_t matrix, int64_t first, const at::Tensor& out) {
  const StoredPlace place = place_of(kept, matrix);
  if (!is_recoded(kept, place)) {
    return place.data_reader->read(bytes_in(out), out.nbytes(), place.data + static_cast<uint64_t>(first));
  }
  const auto size = static_cast<int64_t>(data_bytes(kept.form, kept.rows, kept.columns));
  const Recoded rounded = recoded(kept, matrix, first == 0, first + out.numel() == size);
  at::Tensor(out).copy_(rounded.codes.narrow(0, first, out.numel()));
  const std::lock_guard lock(mutex_);
  if (recoded_name_ != kept.bound->spec.name) recoded_scales_.clear();
  recoded_name_ = kept.bound->spec.name;
  recoded_scales_[matrix] = rounded.scales;
}

void CheckpointSlices::read_scales(const Kept& kept, int64_t matrix, int64_t first, const at::Tensor& out) {
  const StoredPlace place = place_of(kept, matrix);
  if (!is_recoded(kept, place)) {
    return place.scale_reader->read(bytes_in(out), out.nbytes(), place.scale + static_cast<uint64_t>(first));
  }
  at::Tensor scales;
  {
    const std::lock_guard lock(mutex_);
    const auto found = recoded_scales_.find(matrix);
    if (recoded_name_ == kept.bound->spec.name && found != recoded_scales_.end()) scales = found->second;
  }
  if (!scales.defined()) scales = recode(kept, matrix, /*count=*/false).scales;
  at::Tensor(out).copy_(scales.narrow(0, first, out.numel()));
}

// The type of the values between the files and `out` is that in which they would be kept.
void CheckpointSlices::read_plain(const Kept& kept, const StoredPlace& place, int64_t first,
                                  const at::Tensor& out) const {
  const at::ScalarType stored = place.form.dtype;
  const auto width = static_cast<int64_t>(c10::elementSize(stored));
  const int64_t stretch = kSliceStretchBytes / width;
  for (int64_t done = 0; done < out.numel(); done += stretch) {
    const at::Tensor target = out.narrow(0, done, std::min(stretch, out.numel() - done));
    const uint64_t offset = place.data + static_cast<uint64_t>((first + done) * width);
    const bool as_it_is = stored == kept.type && stored == out.scalar_type();
    const at::Tensor values = as_it_is ? target : at::empty({target.numel()}, stored);
    place.data_reader->read(bytes_in(values), values.nbytes(), offset);
    if (!as_it_is) at::Tensor(target).copy_(values.to(kept.type));
  }
}

void CheckpointSlices::read_values(const Kept& kept, int64_t matrix, int64_t first, const at::Tensor& out) {
  const StoredPlace place = place_of(kept, matrix);
  if (!kept.packed && !place.form.is_coded()) return read_plain(kept, place, first, out);
  const bool bf16 = !kept.packed && kept.type == at::kBFloat16;
  const at::ScalarType decoded = bf16 ? at::kBFloat16 : at::kFloat, type = kept.packed ? at::kFloat : kept.type;
  const int64_t end = first + out.numel();
  std::optional<ops::PackedMatrix> rounded;
  if (kept.packed && is_recoded(kept, place)) {
    const Recoded bytes = recoded(kept, matrix, first == 0, end == kept.rows * kept.columns);
    rounded = ops::make_packed(
        packed_format(kept.form), bytes.codes.view({kept.rows, -1}),
        bytes.scales.view(scale_type(kept.form)).view(kept.form.scale_shape({kept.rows, kept.columns})));
  }
  const int64_t columns = kept.columns, last_row = (end - 1) / columns;
  const int64_t stretch = std::max<int64_t>(1, kSliceStretchBytes / columns);
  for (int64_t row = first / columns; row <= last_row; row += stretch) {
    const int64_t rows = std::min(stretch, last_row + 1 - row);
    const int64_t begin = std::max(first, row * columns), number = std::min(end, (row + rows) * columns) - begin;
    const at::Tensor values =
        rounded ? rounded->rows_of(row, rows).decode(decoded) : decode_stored(place, row, rows, columns, decoded);
    const at::Tensor wanted = values.view({-1}).narrow(0, begin - row * columns, number);
    at::Tensor(out.narrow(0, begin - first, number)).copy_(wanted.to(type));
  }
}

void CheckpointSlices::check_table(const Kept& kept, int64_t begin, const at::Tensor& table) const {
  const at::Tensor wrong = table.lt(0).logical_or(table.ge(num_experts_)).nonzero();
  if (wrong.size(0) == 0) return;
  const int64_t index = wrong[0][0].item<int64_t>();
  const std::string& name = kept.bound->whole->name;
  input_error(bound_.source.file_of(name).string(), ": tensor '", name, "': expected expert ids 0 .. ",
              num_experts_ - 1, ", found ", table[index].item<int64_t>(), " at token ", (begin + index) / kept.columns,
              ", slot ", (begin + index) % kept.columns, "; config.json and the tensors do not belong together");
}

void CheckpointSlices::read(const std::string& name, int64_t begin, const at::Tensor& out) {
  const at::NoGradGuard no_grad;
  const bool codes = name.ends_with(model::kCodesEnd), scales = name.ends_with(model::kScalesEnd);
  const std::string_view end = codes ? model::kCodesEnd : scales ? model::kScalesEnd : "";
  const auto found = tensors_.find(name.substr(0, name.size() - end.size()));
  TORCH_CHECK(found != tensors_.end(), "[checkpoint] the model has no tensor ", name);
  const Kept& kept = found->second;
  if (!codes && !scales) {
    for_each_matrix(begin, out.numel(), kept.rows * kept.columns,
                    [&](int64_t matrix, int64_t first, int64_t offset, int64_t number) {
                      read_values(kept, matrix, first, out.narrow(0, offset, number));
                    });
    if (kept.bound->spec.role == TensorRole::kTable) check_table(kept, begin, out);
    return;
  }
  TORCH_CHECK(kept.packed, "[checkpoint] ", name, " of a matrix that is not packed");
  const at::Tensor bytes = out.view(at::kByte);
  const auto width = static_cast<int64_t>(out.element_size());
  const uint64_t of_matrix =
      codes ? data_bytes(kept.form, kept.rows, kept.columns) : scale_bytes(kept.form, kept.rows, kept.columns);
  for_each_matrix(begin * width, bytes.numel(), static_cast<int64_t>(of_matrix),
                  [&](int64_t matrix, int64_t first, int64_t offset, int64_t number) {
                    const at::Tensor part = bytes.narrow(0, offset, number);
                    codes ? read_codes(kept, matrix, first, part) : read_scales(kept, matrix, first, part);
                  });
}

}  // namespace asterism::checkpoint
