#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "asterism/checkpoint/names.h"

namespace asterism::cli {

/// A tensor that can be loaded when it is its turn.
struct LazyTensor {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  std::function<at::Tensor()> load;  // a view of the file: contiguous, not to be written to
};

/// Tensors by names that do not depend on how the file spells them: canonical names for those of a model
/// (checkpoint/names.h), the stored names for all others, such as those of an adapter.
using TensorSet = std::map<std::string, LazyTensor>;

/// Opens the folder of a checkpoint (model.safetensors or its shards) or of an adapter (adapter_model.safetensors), or
/// a single .safetensors file. Matrices that stand for one expert are named "<packed tensor>[<expert>].<gate|up|down>".
/// Reads headers only. InputError when there is nothing of the kind, or when two stored names mean the same tensor.
TensorSet open_tensors(const std::filesystem::path& path);

/// Cuts the packed experts of one set into the matrices of single experts where the other set has these.
void align_experts(TensorSet& a, TensorSet& b);

}  // namespace asterism::cli
