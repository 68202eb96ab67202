#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "asterism/data/length_stats.h"
#include "asterism/data/row_kind.h"
#include "asterism/data/row_review.h"
#include "asterism/data/rows.h"

namespace asterism::data {

/// The sequence lengths that a summary tells about.
inline constexpr std::array<int64_t, 8> kInspectedLengths{512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

/// How many rows have a problem, and what the first of them says.
struct Finding {
  int64_t rows = 0;
  std::string first;  // with file and line
};

struct LongRow {
  int64_t tokens = 0;
  int64_t number = 0;  // of the row, from 1 over all files
  std::string origin;
};

/// A data set as it would be trained on.
struct DataSummary {
  int64_t rows = 0;  // good and bad
  std::map<RowKind, int64_t> kinds;
  std::map<std::string, Finding> bad;       // by category of RowError
  std::map<std::string, Finding> warnings;  // by code: those of row_review.h, nothing_to_train and duplicate_row
  int64_t samples = 0;
  int64_t tokens = 0, trained_tokens = 0;
  LengthStats lengths;            // of samples
  std::vector<LongRow> longest;   // a few, the longest first
  std::vector<FitSummary> fits;   // of samples in which something is trained, at kInspectedLengths
  bool all_rows_compared = true;  // false: the first kComparedRows only were looked through for duplicates

  int64_t bad_rows() const;
};

/// Rows whose contents are remembered to find duplicates: bounds the memory.
inline constexpr size_t kComparedRows = size_t{4} << 20;

struct InspectionOptions {
  RowOptions rows;      // bad_rows is not looked at: bad rows are counted
  int64_t workers = 0;  // threads that parse, encode and tokenise; 0 = all in the calling thread
  /// Called now and then in the calling thread: rows read so far. May be empty.
  std::function<void(int64_t rows)> progress;
};

/// Reads all rows of the files. The result does not depend on the number of workers. Errors that are not of one row are
/// exceptions, as of RowSource and samples_of_row.
DataSummary inspect_data(const std::vector<std::filesystem::path>& files, const InspectionOptions& options);

/// The row of this number, from 1 over all files, and what comes of it.
struct InspectedRow {
  std::string origin;
  RowKind kind;
  std::vector<Sample> samples;
  std::vector<RowWarning> warnings;
};
/// RowError when the row is bad, InputError when the files have fewer rows.
InspectedRow inspect_row(const std::vector<std::filesystem::path>& files, int64_t number, const RowOptions& options);

}  // namespace asterism::data
