#include "asterism/data/preparation.h"

#include <memory>
#include <optional>
#include <utility>

#include "asterism/data/ordered_tasks.h"
#include "asterism/data/owned_row.h"

namespace asterism::data {
namespace {

// Large enough that handing a batch over costs nothing, small enough that all threads are busy at the end of a file.
constexpr size_t kBatchBytes = 256 << 10;
constexpr size_t kBatchesPerWorker = 4;
constexpr size_t kShownBadRows = 5;

/// Neighbouring rows of a file.
struct Batch {
  uint32_t file = 0;
  uint64_t first_number = 0;  // of its first row in the file, from 0
  std::vector<OwnedRow> rows;
};

struct BadRow {
  size_t row;  // in the batch
  RowError error;
};

/// What became of a batch.
struct Outcome {
  std::shared_ptr<const Batch> batch;
  std::vector<SampleEntry> entries;
  FitReport fit;
  std::vector<BadRow> bad;                   // in order
  std::vector<std::vector<Sample>> samples;  // of each row; empty unless they were asked for
};

/// Cuts the rows of files into batches.
class BatchReader {
 public:
  explicit BatchReader(const std::vector<DataFile>& files) : files_(files) {}

  /// Nothing after the last row of the last file.
  std::shared_ptr<const Batch> next() {
    while (file_ < files_.size()) {
      if (!source_) {
        source_ = open_rows(files_[file_].path);
        number_ = 0;
      }
      auto batch = std::make_shared<Batch>();
      batch->file = static_cast<uint32_t>(file_);
      batch->first_number = number_;
      for (size_t bytes = 0; bytes < kBatchBytes; bytes += batch->rows.back().text.size()) {
        const auto row = source_->next();
        if (!row) {
          end_file();
          break;
        }
        batch->rows.emplace_back(*row);
        ++number_;
      }
      if (!batch->rows.empty()) return batch;
    }
    return nullptr;
  }

 private:
  void end_file() {
    check_unchanged(files_[file_++]);
    source_.reset();
  }

  const std::vector<DataFile>& files_;
  size_t file_ = 0;
  uint64_t number_ = 0;
  std::unique_ptr<RowSource> source_;
};

/// Runs in the workers.
Outcome process(std::shared_ptr<const Batch> batch, bool seekable, const PreparationOptions& options,
                bool keep_samples) {
  Outcome outcome;
  for (size_t i = 0; i < batch->rows.size(); ++i) {
    const RawRow row = batch->rows[i].view();
    std::vector<Sample> samples;
    try {
      samples = samples_of_row(row, options.rows);
    } catch (const RowError& error) {
      if (options.rows.bad_rows == BadRows::Error) throw;
      outcome.bad.push_back({i, error});
    }
    const uint64_t position = seekable ? row.offset : batch->first_number + i;
    if (keep_samples) outcome.samples.push_back(samples);
    for (size_t part = 0; part < samples.size(); ++part) {
      if (!fit_sample(samples[part], options.fit, outcome.fit)) continue;
      outcome.entries.push_back(make_entry(samples[part], batch->file, position, static_cast<uint32_t>(part)));
    }
  }
  outcome.batch = std::move(batch);
  return outcome;
}

/// Counts and passes on the outcomes, in order.
class Collector {
 public:
  Collector(const std::vector<DataFile>& files, const PreparationHooks& hooks) : files_(files), hooks_(hooks) {}

  void add(const Outcome& outcome) {
    report_.rows += static_cast<int64_t>(outcome.batch->rows.size());
    report_.fit += outcome.fit;
    for (const SampleEntry& entry : outcome.entries) {
      ++report_.samples;
      report_.tokens += entry.tokens;
      report_.trained_tokens += entry.trained;
      if (hooks_.on_entry) hooks_.on_entry(entry);
    }
    for (const BadRow& bad : outcome.bad) count_bad_row(bad.error);
    if (hooks_.on_row || hooks_.on_bad_row) tell_rows(outcome);
    if (hooks_.on_progress) hooks_.on_progress(report_.rows);
  }

  PreparationReport report() && { return std::move(report_); }

 private:
  void count_bad_row(const RowError& error) {
    ++report_.bad_rows;
    ++report_.bad_by_category[error.category()];
    if (report_.first_bad.size() < kShownBadRows) report_.first_bad.emplace_back(error.what());
  }

  void tell_rows(const Outcome& outcome) {
    const DataFile& file = files_[outcome.batch->file];
    auto bad = outcome.bad.begin();
    for (size_t i = 0; i < outcome.batch->rows.size(); ++i) {
      const bool is_bad = bad != outcome.bad.end() && bad->row == i;
      if (is_bad && hooks_.on_bad_row) hooks_.on_bad_row(file, outcome.batch->rows[i].view(), bad->error);
      if (!is_bad && hooks_.on_row) hooks_.on_row(file, outcome.batch->rows[i].view(), outcome.samples[i]);
      if (is_bad) ++bad;
    }
  }

  const std::vector<DataFile>& files_;
  const PreparationHooks& hooks_;
  PreparationReport report_;
};

}  // namespace

PreparationReport prepare(const std::vector<DataFile>& files, const PreparationOptions& options,
                          const PreparationHooks& hooks) {
  BatchReader reader(files);
  Collector collector(files, hooks);
  const bool keep_samples = static_cast<bool>(hooks.on_row);
  const size_t most_pending = static_cast<size_t>(options.workers) * kBatchesPerWorker + 1;
  OrderedTasks<Outcome> tasks(options.workers);
  for (bool more = true; more || tasks.pending() > 0;) {
    while (more && tasks.pending() < most_pending) {
      std::shared_ptr<const Batch> batch;
      try {
        batch = reader.next();
      } catch (...) {
        // The first thing wrong is what is reported, however far ahead the reader is.
        while (tasks.pending() > 0) collector.add(tasks.take());
        throw;
      }
      more = batch != nullptr;
      if (!more) break;
      const bool seekable = files[batch->file].seekable;
      tasks.submit([=, &options] { return process(batch, seekable, options, keep_samples); });
    }
    if (tasks.pending() > 0) collector.add(tasks.take());
  }
  return std::move(collector).report();
}

}  // namespace asterism::data
