#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "asterism/data/data_index.h"
#include "asterism/data/rows.h"

namespace asterism::data {

struct PreparationOptions {
  RowOptions rows{};
  FitOptions fit{};
  int64_t workers = 0;  // threads that parse, encode and tokenise; 0 = all in the calling thread
};

/// What the caller of `prepare` wants to hear about, in the order of files and rows, in the calling thread. Each may be
/// empty; without `on_row` no sample is kept longer than it is looked at.
struct PreparationHooks {
  std::function<void(const SampleEntry& entry)> on_entry{};  // a sample that can be trained on
  std::function<void(const DataFile& file, const RawRow& row, const std::vector<Sample>& samples)>
      on_row{};  // a good row and all its samples, as they are before any is cut or left out
  std::function<void(const DataFile& file, const RawRow& row, const RowError& error)> on_bad_row{};  // a skipped one
  std::function<void(int64_t rows)> on_progress{};                                                   // rows read so far
};

/// Reads all rows of the files once and makes samples of them, so that whatever is wrong with the data is found before
/// any work is lost. Memory does not depend on the size of the files. InputError of the first row that is wrong, unless
/// the options let it be skipped; RunError when a file changes meanwhile.
PreparationReport prepare(const std::vector<DataFile>& files, const PreparationOptions& options,
                          const PreparationHooks& hooks);

}  // namespace asterism::data
