#pragma once

#include <ATen/ATen.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "asterism/checkpoint/names.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/checkpoint/stored_tensor.h"
#include "asterism/model/config.h"
#include "asterism/model/weights.h"

namespace asterism::checkpoint {

/// Where the values of one tensor of a model lie: in one stored tensor, or, for packed experts, perhaps in one per
/// matrix.
struct BoundTensor {
  model::TensorSpec spec;
  const StoredTensor* whole = nullptr;
  std::map<std::pair<int64_t, ExpertPart::Matrix>, const StoredTensor*> of_expert;

  bool empty() const { return whole == nullptr && of_expert.empty(); }
  const StoredTensor& first() const { return whole != nullptr ? *whole : *of_expert.begin()->second; }
};

/// A checkpoint that holds the tensors of a model, all of them and no others.
struct BoundCheckpoint {
  Source source;
  std::vector<StoredTensor> stored;  // what `tensors` points to
  std::vector<BoundTensor> tensors;  // in the order of model::tensor_specs
  std::vector<std::string> notes;    // what was detected and what is left aside, for the log
};

/// Binds the tensors of a folder to those of a model, strictly: InputError with all missing, unknown and doubly spelled
/// names, wrong shapes and types, and weights and scales that do not fit each other. With `equal_experts`, the matrices
/// of one packed tensor must all have one form. MTP tensors of a model that has no MTP layers by its configuration are
/// left aside with a note.
BoundCheckpoint bind_checkpoint(const std::filesystem::path& folder, const model::Config& config, bool equal_experts);

/// Shape of one matrix of one expert of a packed tensor.
std::vector<int64_t> part_shape(const model::TensorSpec& spec);

/// A view of one matrix of one expert of packed experts [E, 2I, D] or [E, D, I].
at::Tensor part_of(const at::Tensor& packed, const std::string& name, const ExpertPart& part);

}  // namespace asterism::checkpoint
