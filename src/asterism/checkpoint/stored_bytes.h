#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asterism/checkpoint/binding.h"
#include "asterism/checkpoint/shard_writer.h"
#include "asterism/core/positioned_file.h"

namespace asterism::checkpoint {

/// Where the rows of one matrix of a checkpoint lie.
struct StoredPlace {
  std::string name;  // of the stored tensor
  std::filesystem::path file;
  Form form;
  const PositionedReader* data_reader = nullptr;
  const PositionedReader* scale_reader = nullptr;  // null for plain forms
  uint64_t data = 0, scale = 0;                    // offsets of row 0

  /// Reads the bytes of a chunk's rows into buffers, which grow as needed.
  void read(const Chunk& chunk, std::vector<std::byte>& data_out, std::vector<std::byte>& scale_out) const;
  /// The same into memory of the right size; `scale_out` is not used for plain forms.
  void read(const Chunk& chunk, std::byte* data_out, std::byte* scale_out) const;
};

/// The bytes of a checkpoint, read without a mapping. `source` must outlive the object.
class StoredBytes {
 public:
  explicit StoredBytes(const Source& source);

  /// Matrix number `matrix` of a stored tensor, whose matrices are all [rows, columns]: 0 unless experts are packed.
  StoredPlace place(const StoredTensor& tensor, int64_t matrix, int64_t rows, int64_t columns) const;

 private:
  const PositionedReader* reader_of(const std::string& name) const;

  const Source& source_;
  std::map<std::filesystem::path, std::unique_ptr<const PositionedReader>> readers_;
};

/// The matrix that a chunk of a target is made from; `bound` is the tensor that the target holds, or holds a part of.
StoredPlace locate(const StoredBytes& bytes, const BoundTensor& bound, const TargetTensor& target, const Chunk& chunk);

/// The number of the first value of a chunk in its tensor of the model.
int64_t first_value(const model::TensorSpec& spec, const TargetTensor& target, const Chunk& chunk);

}  // namespace asterism::checkpoint
