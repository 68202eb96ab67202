#include "asterism/checkpoint/stored_bytes.h"

#include <algorithm>

#include "asterism/checkpoint/recoding.h"

namespace asterism::checkpoint {

void StoredPlace::read(const Chunk& chunk, std::vector<std::byte>& data_out, std::vector<std::byte>& scale_out) const {
  const uint64_t num_data = data_bytes(form, chunk.rows, chunk.columns);
  const uint64_t num_scale = scale_bytes(form, chunk.rows, chunk.columns);
  if (data_out.size() < num_data) data_out.resize(num_data);
  if (scale_out.size() < num_scale) scale_out.resize(num_scale);
  read(chunk, data_out.data(), scale_out.data());
}

void StoredPlace::read(const Chunk& chunk, std::byte* data_out, std::byte* scale_out) const {
  data_reader->read(data_out, data_bytes(form, chunk.rows, chunk.columns),
                    data + data_bytes(form, chunk.row, chunk.columns));
  if (scale_reader == nullptr) return;
  scale_reader->read(scale_out, scale_bytes(form, chunk.rows, chunk.columns),
                     scale + scale_bytes(form, chunk.row, chunk.columns));
}

StoredBytes::StoredBytes(const Source& source) : source_(source) {
  for (const std::string& name : source.names()) {
    auto& reader = readers_[source.file_of(name)];
    if (!reader) reader = std::make_unique<const PositionedReader>(source.file_of(name));
  }
}

const PositionedReader* StoredBytes::reader_of(const std::string& name) const {
  return readers_.at(source_.file_of(name)).get();
}

StoredPlace StoredBytes::place(const StoredTensor& tensor, int64_t matrix, int64_t rows, int64_t columns) const {
  StoredPlace place{.name = tensor.name,
                    .file = source_.file_of(tensor.name),
                    .form = tensor.form,
                    .data_reader = reader_of(tensor.name)};
  place.data = source_.info(tensor.name).offset + matrix * data_bytes(place.form, rows, columns);
  if (place.form.is_coded()) {
    place.scale_reader = reader_of(tensor.scale_name);
    place.scale = source_.info(tensor.scale_name).offset + matrix * scale_bytes(place.form, rows, columns);
  }
  return place;
}

StoredPlace locate(const StoredBytes& bytes, const BoundTensor& bound, const TargetTensor& target, const Chunk& chunk) {
  if (!is_packed_experts(bound.spec.name)) return bytes.place(*bound.whole, 0, 0, chunk.columns);
  const auto order = packed_matrices(bound.spec.name);
  int64_t expert = chunk.expert, matrix = chunk.matrix;
  if (target.part) {
    expert = target.part->expert;
    matrix = std::ranges::find(order, target.part->matrix) - order.begin();
  }
  const int64_t rows = part_shape(bound.spec)[0];
  if (bound.whole == nullptr) return bytes.place(*bound.of_expert.at({expert, order[matrix]}), 0, rows, chunk.columns);
  return bytes.place(*bound.whole, expert * static_cast<int64_t>(order.size()) + matrix, rows, chunk.columns);
}

int64_t first_value(const model::TensorSpec& spec, const TargetTensor& target, const Chunk& chunk) {
  int64_t matrix = chunk.expert * target.matrices + chunk.matrix, rows = 0;
  if (target.part || target.matrices > 1 || spec.shape.size() == 3) {
    const auto order = packed_matrices(spec.name);
    const auto matrices = static_cast<int64_t>(order.size());
    rows = part_shape(spec)[0];
    if (target.part) {
      matrix = target.part->expert * matrices + (target.part->matrix == order[0] ? 0 : 1);
    }
  }
  return (matrix * rows + chunk.row) * chunk.columns;
}

}  // namespace asterism::checkpoint
