#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asterism/checkpoint/storage.h"

namespace asterism::checkpoint {

/// A file of a checkpoint that is still to be written.
struct PlannedFile {
  std::string name;    // model.safetensors, or model-00001-of-0000N.safetensors
  std::string header;  // its first bytes
  uint64_t bytes = 0;  // of the whole file
};

/// Where a target tensor goes.
struct Placement {
  size_t file = 0;
  uint64_t data = 0;   // offset of its first byte in the file
  uint64_t scale = 0;  // of its scales; 0 without
};

struct ShardPlan {
  std::vector<PlannedFile> files;
  std::vector<Placement> placements;  // of each target tensor
  std::string index;                  // text of model.safetensors.index.json; "" for a single file

  uint64_t bytes() const;
};

/// Cuts the tensors, in their order, into files of at most `max_shard_bytes` of data (a larger tensor has a file of its
/// own, together with its scales) and gives every byte its place: the bytes of the files then depend on nothing else.
ShardPlan plan_shards(const std::vector<TargetTensor>& tensors, uint64_t max_shard_bytes);

}  // namespace asterism::checkpoint
