#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asterism/checkpoint/safetensors.h"
#include "asterism/core/positioned_file.h"
#include "asterism/model/slices.h"

namespace asterism::checkpoint {

/// A safetensors file written in slices, in any order: the bytes are those of write_safetensors for whole tensors.
/// RunError when something cannot be written.
class SlicedWriter {
 public:
  /// `tensors`: name, dtype, shape and bytes of each.
  SlicedWriter(const std::filesystem::path& path, std::vector<PlannedTensor> tensors);

  /// Elements begin, begin + 1, .. of a tensor, in its type.
  void write(const std::string& name, int64_t begin, const at::Tensor& elements);
  /// Syncs and closes. An internal error unless as many bytes came as the tensors have.
  void close();

 private:
  std::filesystem::path path_;
  std::map<std::string, PlannedTensor> tensors_;
  uint64_t missing_ = 0;
  std::unique_ptr<PositionedWriter> file_;
};

/// The tensors of one safetensors file in slices, read without a mapping. Thread-safe.
class SlicedFile : public model::SliceReader {
 public:
  /// `prefix` goes in front of every name that is asked for; what the file does not have is read from `rest`, under its
  /// name. InputError for a file that is damaged.
  explicit SlicedFile(const std::filesystem::path& path, std::string prefix = "", model::SliceReader* rest = nullptr);

  bool contains(const std::string& name) const { return tensors_.find(prefix_ + name) != nullptr; }
  void read(const std::string& name, int64_t begin, const at::Tensor& out) override;

 private:
  const SafetensorsFile tensors_;
  const PositionedReader bytes_;
  const std::string prefix_;
  model::SliceReader* rest_;
};

}  // namespace asterism::checkpoint
