#include "asterism/data/preparation.h"

#include <memory>
#include <utility>

#include "asterism/data/ordered_tasks.h"
#include "asterism/data/row_batches.h"

namespace asterism::data {
namespace {

constexpr size_t kBatchesPerWorker = 4;
constexpr size_t kShownBadRows = 5;

struct BadRow {
  size_t row;  // in the batch
  RowError error;
};

/// What became of a batch.
struct Outcome {
  std::shared_ptr<const RowBatch> batch;
  std::vector<SampleEntry> entries;
  FitReport fit;
  std::vector<BadRow> bad;                   // in order
  std::vector<std::vector<Sample>> samples;  // of each row; empty unless they were asked for
};

std::vector<std::filesystem::path> paths_of(const std::vector<DataFile>& files) {
  std::vector<std::filesystem::path> paths;
  for (const DataFile& file : files) paths.push_back(file.path);
  return paths;
}

/// Runs in the workers.
Outcome process(std::shared_ptr<const RowBatch> batch, bool seekable, const PreparationOptions& options,
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
      outcome.entries.push_back(
          make_entry(samples[part], static_cast<uint32_t>(batch->file), position, static_cast<uint32_t>(part)));
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
  RowBatches reader(paths_of(files), [&](size_t file) { check_unchanged(files[file]); });
  Collector collector(files, hooks);
  const bool keep_samples = static_cast<bool>(hooks.on_row);
  const size_t most_pending = static_cast<size_t>(options.workers) * kBatchesPerWorker + 1;
  OrderedTasks<Outcome> tasks(options.workers);
  for (bool more = true; more || tasks.pending() > 0;) {
    while (more && tasks.pending() < most_pending) {
      std::shared_ptr<const RowBatch> batch;
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
