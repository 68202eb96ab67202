#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "asterism/checkpoint/safetensors.h"

namespace asterism::checkpoint {

/// The tensors of a checkpoint folder, wherever they lie: <stem>.safetensors, or <stem>.safetensors.index.json and the
/// shards that it names. Opening reads headers only.
class Source {
 public:
  /// InputError when the folder has neither or both, when a shard is missing or would lie outside the folder, and when
  /// index and shards disagree (a name listed but absent, present but not listed): all findings together.
  static Source open(const std::filesystem::path& folder, const std::string& stem = "model");

  const std::filesystem::path& folder() const { return folder_; }
  /// Sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return locations_.contains(name); }
  /// InputError when there is no such tensor, here and below.
  const TensorInfo& info(const std::string& name) const;
  /// A view of the mapped file as SafetensorsFile::view returns it: not to be written to.
  at::Tensor tensor(const std::string& name) const;
  const std::filesystem::path& file_of(const std::string& name) const;

 private:
  const SafetensorsFile& holder(const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> locations_;  // name -> index into files_
};

/// Cuts `tensors`, in their order, into shards of at most `max_shard_bytes` of data (a larger tensor has a shard of its
/// own) and writes them into the existing `folder` as transformers names them: model.safetensors when one is enough,
/// otherwise model-00001-of-0000N.safetensors and model.safetensors.index.json. RunError when a file cannot be written.
void write_shards(const std::filesystem::path& folder, const std::vector<NamedTensor>& tensors,
                  uint64_t max_shard_bytes);

}  // namespace asterism::checkpoint
