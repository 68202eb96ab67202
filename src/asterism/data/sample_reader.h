#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "asterism/data/data_index.h"
#include "asterism/data/owned_row.h"
#include "asterism/data/rows.h"

namespace asterism::data {

/// Makes the samples of an index again from their files. Any number of threads.
class SampleReader {
 public:
  SampleReader(std::shared_ptr<const DataIndex> index, RowOptions rows, const FitOptions& fit);

  /// The sample from its row. RunError when it is not the one that was indexed: the file, or what makes tokens of it,
  /// has changed.
  Sample read(const SampleEntry& entry, const RawRow& row) const;
  /// The same for a sample of a seekable file, whose row is read as well.
  Sample read(const SampleEntry& entry) const;

  const DataIndex& index() const { return *index_; }

 private:
  using Idle = std::list<std::pair<uint32_t, std::unique_ptr<RowSource>>>;  // with the number of the file

  std::unique_ptr<RowSource> borrow(uint32_t file) const;
  void give_back(uint32_t file, std::unique_ptr<RowSource> source) const;

  std::shared_ptr<const DataIndex> index_;
  RowOptions rows_;
  FitOptions fit_;
  mutable std::mutex mutex_;
  mutable Idle idle_;  // open files, the one used last in front
};

}  // namespace asterism::data
