#include "asterism/checkpoint/packed_weights.h"

#include <ATen/Parallel.h>

#include <mutex>

#include "asterism/core/error.h"

namespace asterism::checkpoint {

namespace {

// Stored bytes that become one part of one matrix.
struct PackedPiece {
  const StoredTensor* stored;
  int64_t expert, part;
};

std::vector<PackedPiece> pieces_of(const BoundTensor& bound, int64_t parts) {
  std::vector<PackedPiece> pieces;
  for (const auto& [key, stored] : bound.of_expert) {
    pieces.push_back({stored, key.first, key.second == ExpertPart::Matrix::kUp ? 1 : 0});
  }
  if (bound.whole == nullptr) return pieces;
  const int64_t experts = bound.whole->is_packed() ? bound.spec.shape[0] : 1;
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t part = 0; part < parts; ++part) pieces.push_back({bound.whole, expert, part});
  }
  return pieces;
}

const std::byte* bytes_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const std::byte*>(tensor.const_data_ptr()) : nullptr;
}

RecodingLoss load_piece(const Source& source, const PackedPiece& piece, const Form& form, const ops::PackedMatrix& m,
                        Recoder& recoder) {
  StoredMatrix stored = stored_matrix(source, *piece.stored);
  if (piece.stored->is_packed()) stored = stored.part(piece.expert, piece.part, m.parts);
  const ops::PackedMatrix::Part target = m.part(piece.expert, piece.part);
  const int64_t rows = target.codes.size(0);
  try {
    const RecodingLoss loss =
        recoder.recode(stored.form, {bytes_of(stored.data), bytes_of(stored.scale)}, form,
                       static_cast<std::byte*>(target.codes.mutable_data_ptr()),
                       static_cast<std::byte*>(target.scales.mutable_data_ptr()), rows, m.columns(), /*measure=*/true);
    source.release(piece.stored->name, stored.data);
    if (stored.scale.defined()) source.release(piece.stored->scale_name, stored.scale);
    return loss;
  } catch (const RunError& error) {
    run_error(source.file_of(piece.stored->name).string(), ": tensor '", piece.stored->name, "' ", error.what());
  }
}

}  // namespace

Form kept_form(const BoundTensor& bound, const Storage& wish) {
  const Form now = bound.first().form;
  const TensorClass type = tensor_class(bound.spec);
  const std::optional<Form> form = type == TensorClass::kExperts ? wish.experts
                                   : type == TensorClass::kDense ? wish.dense
                                                                 : std::nullopt;
  return form && form->coding != now.coding ? *form : now;
}

void check_packable(const Source& source, const BoundTensor& bound, const Form& form) {
  const int64_t columns = bound.spec.shape.back();
  if (form.coding != Form::Coding::kFp4 || columns % 32 == 0) return;
  input_error(source.file_of(bound.first().name).string(), ": tensor '", bound.first().name, "' has ", columns,
              " columns, and FP4 needs a multiple of 32; use model.storage: fp8 or auto");
}

ops::PackedMatrix load_packed(const Source& source, const BoundTensor& bound, const Form& form, RecodingLoss& loss) {
  const model::TensorSpec& spec = bound.spec;
  const bool fp4 = form.coding == Form::Coding::kFp4;
  check_packable(source, bound, form);
  const int64_t parts = spec.shape.size() == 3 ? static_cast<int64_t>(packed_matrices(spec.name).size()) : 1;
  const ops::PackedMatrix m = ops::empty_packed(fp4 ? ops::PackedFormat::kFp4 : ops::PackedFormat::kFp8, spec.shape,
                                                form.scale == at::kFloat ? at::kFloat : at::kByte, parts);
  const std::vector<PackedPiece> pieces = pieces_of(bound, parts);
  std::mutex mutex;
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    Recoder recoder;
    RecodingLoss sum;
    for (int64_t i = begin; i < end; ++i) sum += load_piece(source, pieces[i], form, m, recoder);
    const std::lock_guard lock(mutex);
    loss += sum;
  });
  return m;
}

}  // namespace asterism::checkpoint
