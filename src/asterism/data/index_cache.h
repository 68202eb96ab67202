#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "asterism/data/data_index.h"
#include "asterism/data/preparation.h"

namespace asterism::data {

/// Where indices are kept from one start to the next.
struct IndexPlace {
  std::filesystem::path folder{};  // created when missing; empty = nowhere, the index lives in memory
  std::string settings{};          // everything besides the files that decides what a row becomes
};

struct PreparedData {
  std::shared_ptr<const DataIndex> index;
  std::filesystem::path rejected_rows;  // the skipped bad rows as JSON Lines, complete; empty when there are none or no
                                        // folder
  bool from_cache = false;
  std::string cache_note;  // why the index that lay in the cache was not used; empty when none lay there
};

/// The index of the data: that of an earlier start when the files have the size and time they had then and the settings
/// are the same, else made by a preparation pass and left for the next start. A file in the cache is complete or
/// absent; one that is damaged or out of date is replaced.
PreparedData prepare_files(const std::vector<DataFile>& files, const PreparationOptions& options,
                           const IndexPlace& place, const std::function<void(int64_t rows)>& on_progress = {});
/// The same for the files that the sources name.
PreparedData prepare_data(const std::vector<DataSource>& sources, const PreparationOptions& options,
                          const IndexPlace& place, const std::function<void(int64_t rows)>& on_progress = {});

}  // namespace asterism::data
