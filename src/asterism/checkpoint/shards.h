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

/// Lies in the folder of a conversion that is not finished (conversion_record.h).
inline constexpr const char* kConversionJournal = "conversion.jsonl";

/// Whether a file of this name lies in the folder whose file names it: "../x", "/x" and "a/b" do not.
bool is_plain_file_name(const std::string& name);

/// The tensors of a checkpoint folder, wherever they lie: <stem>.safetensors, or <stem>.safetensors.index.json and the
/// shards that it names. Opening reads headers only.
class Source {
 public:
  /// InputError when the folder is an unfinished conversion, when it has neither or both, when a shard is missing or
  /// would lie outside the folder, and when index and shards disagree (a name listed but absent, present but not
  /// listed): all findings together.
  static Source open(const std::filesystem::path& folder, const std::string& stem = "model");

  /// The tensors of one file, wherever it lies.
  static Source of_file(const std::filesystem::path& file);

  const std::filesystem::path& folder() const { return folder_; }
  /// Sorted.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return locations_.contains(name); }
  /// InputError when there is no such tensor, here and below.
  const TensorInfo& info(const std::string& name) const;
  /// A view of the mapped file as SafetensorsFile::view returns it: not to be written to.
  at::Tensor tensor(const std::string& name) const;
  /// Gives the pages of that view, or of a part of it, back to the system.
  void release(const std::string& name, const at::Tensor& view) const;
  const std::filesystem::path& file_of(const std::string& name) const;

 private:
  const SafetensorsFile& holder(const std::string& name) const;

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> locations_;  // name -> index into files_
};

}  // namespace asterism::checkpoint
