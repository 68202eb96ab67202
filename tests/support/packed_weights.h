#pragma once

#include <string>

#include "asterism/model/model.h"
#include "asterism/ops/packed_matrix.h"

namespace asterism::testing {

/// How a test's packed weight is kept.
enum class Packing { kFp4, kFp8, kFp8WideScales };
constexpr Packing kPackings[] = {Packing::kFp4, Packing::kFp8, Packing::kFp8WideScales};

/// Random codes of every finite value and scales that differ from block to block, named as random_tensor: entries are
/// of the size of 1 / sqrt(columns). `sizes` is [N, K] or [E, N, K].
ops::PackedMatrix random_packed(Packing packing, at::IntArrayRef sizes, const std::string& name, int64_t parts = 1);

/// Packs every matrix that may be: experts as FP4 (their columns are multiples of 32), all others as FP8.
void pack_model(model::Model& model);
/// The same values as plain fp32 tensors.
void unpack_model(model::Model& model);

}  // namespace asterism::testing
