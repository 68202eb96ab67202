#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "asterism/core/file.h"

namespace asterism::train {

/// Writes metrics as TensorBoard reads them: TFRecord frames that hold Event messages (tensorflow's event.proto and
/// summary.proto, encoded by hand).
class TensorboardWriter {
 public:
  /// Starts a new event file in `folder`, which is created if need be, to continue after `last_step` (0 = a run that
  /// starts anew): TensorBoard then drops what an interrupted process has written for later steps.
  /// RunError when the file cannot be created or written.
  TensorboardWriter(const std::filesystem::path& folder, int64_t last_step);

  /// One event with a scalar for every number in `row` but `step`, tagged with its key. It is with the system when this
  /// returns.
  void add(int64_t step, const nlohmann::ordered_json& row);

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
