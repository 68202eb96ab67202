#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "asterism/data/owned_row.h"

namespace asterism::data {

/// Neighbouring rows of a file.
struct RowBatch {
  size_t file = 0;            // number of the file
  uint64_t first_number = 0;  // of the first row in the file, from 0
  std::vector<OwnedRow> rows;
};

/// Cuts the rows of files, one file after the other, into batches for worker threads: large enough that handing one
/// over costs nothing, small enough that all threads are busy at the end of a file.
class RowBatches {
 public:
  /// `at_end` is called with the number of a file when its last row has been read; it may be empty.
  explicit RowBatches(std::vector<std::filesystem::path> files, std::function<void(size_t file)> at_end = {});

  /// Never without rows; nullptr after the last row of the last file. Errors are those of RowSource.
  std::shared_ptr<const RowBatch> next();

 private:
  std::vector<std::filesystem::path> files_;
  std::function<void(size_t file)> at_end_;
  size_t file_ = 0;
  uint64_t number_ = 0;  // of the next row in the file
  std::unique_ptr<RowSource> source_;
};

}  // namespace asterism::data
