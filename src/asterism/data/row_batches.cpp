#include "asterism/data/row_batches.h"

#include <utility>

namespace asterism::data {
namespace {

constexpr size_t kBatchBytes = size_t{256} << 10;

}  // namespace

RowBatches::RowBatches(std::vector<std::filesystem::path> files, std::function<void(size_t file)> at_end)
    : files_(std::move(files)), at_end_(std::move(at_end)) {}

std::shared_ptr<const RowBatch> RowBatches::next() {
  while (file_ < files_.size()) {
    if (!source_) {
      source_ = open_rows(files_[file_]);
      number_ = 0;
    }
    auto batch = std::make_shared<RowBatch>(RowBatch{.file = file_, .first_number = number_, .rows = {}});
    for (size_t bytes = 0; bytes < kBatchBytes; bytes += batch->rows.back().text.size()) {
      const auto row = source_->next();
      if (!row) {
        source_.reset();
        const size_t ended = file_++;
        if (at_end_) at_end_(ended);
        break;
      }
      batch->rows.emplace_back(*row);
      ++number_;
    }
    if (!batch->rows.empty()) return batch;
  }
  return nullptr;
}

}  // namespace asterism::data
