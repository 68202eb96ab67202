#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "asterism/data/loader.h"

namespace asterism::data {

/// Token rows as JSON Lines: row n has 2 to 6 tokens, each with the id n.
inline std::string numbered_rows(int64_t first, int64_t count) {
  std::string lines;
  for (int64_t name = first; name < first + count; ++name) {
    std::string ids = std::to_string(name);
    for (int64_t t = 1; t < 2 + name % 5; ++t) ids += ", " + std::to_string(name);
    lines += "{\"input_ids\": [" + ids + "]}\n";
  }
  return lines;
}

/// The rows whose documents stand in a packed row.
inline std::vector<int64_t> names_in(const PackedRow& row) {
  std::vector<int64_t> names;
  size_t begin = 0;
  for (const int64_t length : row.lengths) {
    names.push_back(row.ids[begin]);
    begin += static_cast<size_t>(length);
  }
  return names;
}

inline std::vector<int64_t> names_in(const std::vector<PackedRow>& rows) {
  std::vector<int64_t> names;
  for (const PackedRow& row : rows) {
    for (const int64_t name : names_in(row)) names.push_back(name);
  }
  return names;
}

/// Rows of 10 tokens of data that need no tokenizer, prepared in memory. The weights of the options are those of the
/// sources.
inline DataSet make_data_set(const std::vector<DataSource>& sources, DataSetOptions options = {},
                             const PreparationOptions& preparation = {.fit = {.sequence_length = 10}}) {
  options.weights.clear();
  for (const DataSource& source : sources) options.weights.push_back(source.weight);
  return DataSet(prepare_data(sources, preparation, {}), preparation.rows, preparation.fit, options);
}

}  // namespace asterism::data
