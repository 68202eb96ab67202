#include "asterism/data/data_index.h"

#include <bit>
#include <limits>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/data/data_files.h"
#include "asterism/data/fingerprint.h"
#include "asterism/data/row_source.h"

namespace asterism::data {
namespace {

constexpr size_t kMaxFiles = size_t{1} << (64 - SampleEntry::kPositionBits);

uint32_t content_check(const Sample& sample) {
  Fingerprint content;
  for (size_t t = 0; t < sample.ids.size(); ++t) {
    content.add((static_cast<uint64_t>(sample.ids[t]) << 32) ^ std::bit_cast<uint32_t>(sample.weights[t]));
  }
  return static_cast<uint32_t>(content.value());
}

}  // namespace

SampleEntry make_entry(const Sample& sample, uint32_t file, uint64_t position, uint32_t part) {
  SampleEntry entry;
  entry.place = (uint64_t{file} << SampleEntry::kPositionBits) | position;
  entry.tokens = static_cast<uint32_t>(sample.size());
  entry.trained = static_cast<uint32_t>(sample.trained_tokens());
  entry.part = part;
  entry.check = content_check(sample);
  return entry;
}

std::vector<DataFile> list_files(const std::vector<DataSource>& sources) {
  std::vector<DataFile> files;
  for (size_t number = 0; number < sources.size(); ++number) {
    for (auto& path : data_files(sources[number].path)) {
      const FileStamp stamp = file_stamp(path);
      const bool seekable = open_rows(path)->seekable();
      files.push_back({std::move(path), static_cast<int64_t>(number), seekable, stamp});
    }
  }
  if (files.size() > kMaxFiles) {
    input_error("the data are ", files.size(), " files, at most ", kMaxFiles, " are possible; join some of them");
  }
  return files;
}

void check_unchanged(const DataFile& file) {
  FileStamp now;
  try {
    now = file_stamp(file.path);
  } catch (const InputError& error) {
    run_error(error.what(), "; it was there when the run began");
  }
  if (now == file.stamp) return;
  run_error(file.path.string(), ": the file was changed while it was in use (",
            now.bytes == file.stamp.bytes ? text("it was written again, with the same ", now.bytes, " bytes")
                                          : text("it had ", file.stamp.bytes, " bytes and has ", now.bytes),
            "). Leave data files alone during a run; put the old content back to go on from the last checkpoint");
}

DataIndex::DataIndex(std::vector<DataFile> files, PreparationReport report, std::vector<SampleEntry> entries)
    : files_(std::move(files)), report_(std::move(report)), owned_(std::move(entries)), entries_(owned_) {
  initialise(owned_.size());
}

DataIndex::DataIndex(std::vector<DataFile> files, PreparationReport report, std::shared_ptr<const MappedFile> mapped)
    : files_(std::move(files)), report_(std::move(report)), mapped_(std::move(mapped)) {
  const auto count = static_cast<size_t>(report_.samples);
  entries_ = {reinterpret_cast<const SampleEntry*>(mapped_->data()), count};
  initialise(count);
}

void DataIndex::initialise(size_t count) {
  // Samples are numbered by 32 bits: half of the memory of a plan.
  if (count >= std::numeric_limits<uint32_t>::max()) {
    input_error("the data have ", count, " samples, at most 4294967294 are possible; split them into several runs");
  }
  Fingerprint content;
  content.add(count);
  for (const SampleEntry& entry : entries_) {
    content.add((uint64_t{entry.tokens} << 32) | entry.trained);
    content.add((uint64_t{entry.check} << 32) | entry.part);
  }
  fingerprint_ = content.value();
}

std::vector<Extent> DataIndex::extents(std::span<const double> weights) const {
  std::vector<Extent> extents;
  int64_t source = -1;
  for (uint32_t number = 0; number < entries_.size(); ++number) {
    const DataFile& file = file_of(entries_[number]);
    if (extents.empty() || file.source != source || file.seekable != extents.back().seekable) {
      source = file.source;
      extents.push_back({number, 0, weights[static_cast<size_t>(source)], file.seekable});
    }
    ++extents.back().count;
  }
  return extents;
}

}  // namespace asterism::data
