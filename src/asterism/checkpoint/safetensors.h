#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "asterism/core/file.h"

namespace asterism::checkpoint {

/// One entry of a safetensors header.
struct TensorInfo {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // of the first byte, from the start of the file
  uint64_t bytes = 0;
};

/// A safetensors file (model-spec 6.6), mapped read-only. `open` checks the whole header against the size of the file
/// before any tensor is touched: InputError with file, tensor, offset, expected and found for a header that is
/// truncated, not JSON, names a tensor twice, states an unknown dtype or a shape that does not fit its bytes, and for
/// data that overlap, leave holes, end early or go on after the last tensor.
/// Reads F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL F8_E4M3 F8_E8M0.
class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_->path(); }
  /// In the order of their bytes.
  const std::vector<TensorInfo>& tensors() const& { return tensors_; }
  const std::vector<TensorInfo>& tensors() const&& = delete;  // a loop over a temporary's tensors would dangle
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// nullptr when the file has no such tensor.
  const TensorInfo* find(const std::string& name) const;
  /// InputError when the file has no such tensor; names the nearest one.
  const TensorInfo& info(const std::string& name) const;

  /// The tensor as a view of the mapping, which it keeps alive: it must not be written to. A tensor whose bytes are not
  /// aligned for its dtype (other programs write such files) comes back as a copy.
  /// InputError when a BOOL holds another byte than 0 or 1.
  at::Tensor view(const std::string& name) const;
  /// Gives the pages of a view, or of a part of one, back to the system (MappedFile::release).
  void release(const at::Tensor& view) const;
  /// The tensor in memory of its own.
  at::Tensor copy(const std::string& name) const;

 private:
  SafetensorsFile() = default;
  std::shared_ptr<const MappedFile> file_;  // shared with every view
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to be written; a strided view or a tensor on a device is fine.
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
  /// Converted to this type while it is written, one tensor at a time; as it is when absent.
  std::optional<at::ScalarType> dtype = std::nullopt;
  /// Of a tensor on the meta device, which has no values: fills `out`, flat and of its type, with elements begin,
  /// begin + 1, .. of it. The file is then written in stretches.
  std::function<void(int64_t begin, const at::Tensor& out)> read = {};

  at::ScalarType stored_dtype() const { return dtype.value_or(tensor.scalar_type()); }
  uint64_t stored_bytes() const;
};

/// A tensor of a file that is still to be written.
struct PlannedTensor {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of its first byte in the file, set by plan_safetensors
};

/// Puts the tensors of a file into the order in which they are written, gives each its place, and returns what stands
/// before their data: the length field and the header.
std::string plan_safetensors(std::vector<PlannedTensor>& tensors);

/// Writes one file: tensors by falling width of their dtype, then by name, which keeps all of them aligned and is the
/// order of the safetensors library, so that equal tensors give equal bytes. The header is padded with spaces to a
/// multiple of 8 and has the metadata {"format": "pt"}, which transformers asks for.
/// RunError when the file cannot be written; what was written so far stays (callers write below an AtomicFolder).
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

/// "BF16" for at::kBFloat16: the spelling of the format. An internal error for types that the format lacks here.
std::string safetensors_dtype_name(at::ScalarType dtype);

}  // namespace asterism::checkpoint
