#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "asterism/checkpoint/names.h"

namespace asterism::cli {

/// A tensor whose values are read when it is their turn. It is seen as rows of its last dimension.
struct LazyTensor {
  std::vector<int64_t> shape;  // of the values
  std::string form;            // "F32", "FP8 (F32 scales)", ...
  int64_t matrix_rows = 1;     // packed experts: a reading never goes beyond a multiple of this
  /// Rows first .. first + count - 1 as a matrix: in the stored type, or fp32 for FP8 and FP4. `first` is a multiple of
  /// 128 within its matrix.
  std::function<at::Tensor(int64_t first, int64_t count)> rows = {};

  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t num_rows() const;
};

/// Tensors by names that do not depend on how the file spells them: canonical names for those of a model
/// (checkpoint/names.h), the stored names for all others, such as those of an adapter.
using TensorSet = std::map<std::string, LazyTensor>;

/// Opens the folder of a checkpoint (model.safetensors or its shards) or of an adapter (adapter_model.safetensors), or
/// a single .safetensors file, in any layout and storage: scales belong to their weights and are no tensors of their
/// own. Matrices that stand for one expert are named "<packed tensor>[<expert>].<gate|up|down>". Reads headers only,
/// and values without a mapping, so that memory stays bounded. InputError when there is nothing of the kind, when two
/// stored names mean the same tensor, or when weights and scales do not fit each other.
TensorSet open_tensors(const std::filesystem::path& path);

/// Cuts the packed experts of one set into the matrices of single experts where the other set has these.
void align_experts(TensorSet& a, TensorSet& b);

}  // namespace asterism::cli
