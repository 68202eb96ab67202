#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "asterism/core/file.h"
#include "asterism/data/data_source.h"
#include "asterism/data/epoch_order.h"
#include "asterism/data/packing.h"
#include "asterism/data/sample.h"

namespace asterism::data {

/// One sample that can be trained on: where its row stands and what became of it. This is all that is kept of it
/// between the preparation and its use.
struct SampleEntry {
  uint64_t place = 0;    // number of the file, and in the low 48 bits where the row is in it
  uint32_t tokens = 0;   // after truncation
  uint32_t trained = 0;  // tokens that are targets
  uint32_t part = 0;     // number of the sample among those of its row
  uint32_t check = 0;    // of ids and weights: notices that the row or its encoding has changed

  uint32_t file() const { return static_cast<uint32_t>(place >> kPositionBits); }
  /// Byte offset of the row in a seekable file, else its number from 0.
  uint64_t position() const { return place & ((uint64_t{1} << kPositionBits) - 1); }

  static constexpr int kPositionBits = 48;
};
static_assert(sizeof(SampleEntry) == 24);

SampleEntry make_entry(const Sample& sample, uint32_t file, uint64_t position, uint32_t part);

/// A data file as it was when its rows were indexed.
struct DataFile {
  std::filesystem::path path;
  int64_t source = 0;  // number of the source that names it
  bool seekable = true;
  FileStamp stamp;
};

/// The files of all sources, in order. InputError when one cannot be read.
std::vector<DataFile> list_files(const std::vector<DataSource>& sources);

/// RunError that says what happened when the file is not as it was when it was indexed.
void check_unchanged(const DataFile& file);

/// What the rows of a data set gave.
struct PreparationReport {
  int64_t rows = 0;  // good and bad
  int64_t bad_rows = 0;
  std::map<std::string, int64_t> bad_by_category;
  std::vector<std::string> first_bad;  // messages of the first few bad rows
  FitReport fit;
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t trained_tokens = 0;
};

/// All samples of a data set, in the order of files and rows. The entries lie in memory or in a mapped file.
class DataIndex {
 public:
  DataIndex(std::vector<DataFile> files, PreparationReport report, std::vector<SampleEntry> entries);
  /// `mapped` begins with the entries.
  DataIndex(std::vector<DataFile> files, PreparationReport report, std::shared_ptr<const MappedFile> mapped);

  std::span<const SampleEntry> entries() const { return entries_; }
  const std::vector<DataFile>& files() const { return files_; }
  const DataFile& file_of(const SampleEntry& entry) const { return files_.at(entry.file()); }
  const PreparationReport& report() const { return report_; }

  /// Depends on what the samples are, not on where the files lie or when they were written.
  uint64_t fingerprint() const { return fingerprint_; }

  /// Stretches of entries that an epoch treats alike. `weights` of the sources.
  std::vector<Extent> extents(std::span<const double> weights) const;

 private:
  void initialise(size_t count);

  std::vector<DataFile> files_;
  PreparationReport report_;
  std::vector<SampleEntry> owned_;
  std::shared_ptr<const MappedFile> mapped_;
  std::span<const SampleEntry> entries_;
  uint64_t fingerprint_ = 0;
};

}  // namespace asterism::data
