#pragma once

#include "asterism/checkpoint/binding.h"
#include "asterism/checkpoint/recoding.h"
#include "asterism/checkpoint/storage.h"
#include "asterism/ops/packed_matrix.h"

namespace asterism::checkpoint {

/// The form in which a matrix is kept in memory when matrices are kept packed: as stored, or, with a form for its class
/// in `wish`, in that one. A coding that it has already stays, whatever type its scales have; classes without a coded
/// form in the release stay as stored.
Form kept_form(const BoundTensor& bound, const Storage& wish);

/// InputError when the form cannot hold the number of columns.
void check_packable(const Source& source, const BoundTensor& bound, const Form& form);

/// Reads a bound matrix, or the matrices of all experts, into packed memory in a coded form: bytes are copied where
/// that is the form they have, and rounded otherwise, which adds to `loss`. Pages of the files are given back as soon
/// as they are read. InputError when FP4 cannot hold the number of columns; RunError for values that no code has.
ops::PackedMatrix load_packed(const Source& source, const BoundTensor& bound, const Form& form, RecodingLoss& loss);

}  // namespace asterism::checkpoint
