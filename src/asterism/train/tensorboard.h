#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "asterism/core/file.h"

namespace asterism::train {

/// Writes scalars as TensorBoard reads them: TFRecord frames that hold Event messages (tensorflow's event.proto and
/// summary.proto, encoded by hand).
class TensorBoardWriter {
 public:
  /// Starts a new event file in `folder`, which is created if need be. `first_step` is the first step this process will
  /// write: TensorBoard then drops what an earlier, interrupted process has written for it and later steps.
  /// RunError when the file cannot be created or written.
  TensorBoardWriter(const std::filesystem::path& folder, int64_t first_step);

  using Scalars = std::vector<std::pair<std::string, double>>;
  /// One event with the values of a step. They are with the system when this returns.
  void write(int64_t step, const Scalars& scalars);

  const std::filesystem::path& file() const { return file_; }

 private:
  std::filesystem::path file_;
  FileWriter writer_;
};

/// `record` as a TFRecord frame: length (uint64), its masked CRC, the bytes, their masked CRC; all little-endian.
std::string tfrecord_frame(std::string_view record);

/// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78).
uint32_t crc32c(std::string_view bytes);

}  // namespace asterism::train
