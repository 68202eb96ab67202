#include "asterism/data/loader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/data/data_files.h"

namespace asterism::data {
namespace {

/// Fisher-Yates with the numbers of the stream of this epoch.
void permute(std::vector<int64_t>& order, uint64_t seed, int64_t epoch) {
  const RandomStream stream(seed, "data.permutation", {static_cast<uint64_t>(epoch)});
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i, i)]);
}

std::vector<Sample> read_sources(const std::vector<std::string>& sources, const RowOptions& options,
                                 ReadReport& report) {
  std::vector<std::filesystem::path> files;
  for (const std::string& source : sources) {
    for (auto& file : data_files(source)) files.push_back(std::move(file));
  }
  return read_samples(files, options, report);
}

std::string why_nothing_is_trained(const DataSetReport& report) {
  std::string reasons = text(report.read.rows, " rows, ", report.read.bad_rows, " bad, ", report.fit.dropped,
                             " too long, ", report.fit.without_targets, " with nothing to train");
  for (const std::string& bad : report.read.first_bad) reasons += "\n  " + bad;
  return reasons;
}

}  // namespace

DataSet::DataSet(const std::vector<std::string>& sources, const RowOptions& row_options, const DataSetOptions& options)
    : options_(options) {
  initialise(read_sources(sources, row_options, report_.read));
}

DataSet::DataSet(std::vector<Sample> samples, const DataSetOptions& options) : options_(options) {
  report_.read.rows = static_cast<int64_t>(samples.size());
  initialise(std::move(samples));
}

void DataSet::initialise(std::vector<Sample> samples) {
  if (options_.batch < 1) input_error("train.batch must be at least 1, got ", options_.batch);
  samples_ = fit_samples(std::move(samples), options_.packing.sequence_length, options_.overlong, report_.fit);
  if (samples_.empty()) input_error("the data has no token to train: ", why_nothing_is_trained(report_));
  for (const Sample& sample : samples_) {
    lengths_.push_back(sample.size());
    report_.tokens += sample.size();
    report_.trained_tokens += sample.trained_tokens();
  }
  report_.samples = static_cast<int64_t>(samples_.size());
  report_.rows = rows_per_epoch(0);
  report_.fill_ratio = static_cast<double>(report_.tokens) /
                       (static_cast<double>(report_.rows) * static_cast<double>(options_.packing.sequence_length));
}

DataSet::Plan DataSet::make_plan(bool shuffle, int64_t epoch) const {
  std::vector<int64_t> order(samples_.size());
  std::iota(order.begin(), order.end(), 0);
  if (shuffle) permute(order, options_.seed, epoch);
  return pack_documents(lengths_, order, options_.packing);
}

const DataSet::Plan& DataSet::plan_of_epoch(int64_t epoch) const {
  // Without shuffling all epochs are alike.
  const int64_t wanted = options_.shuffle ? epoch : 0;
  if (planned_epoch_ != wanted) {
    plan_ = make_plan(options_.shuffle, wanted);
    planned_epoch_ = wanted;
  }
  return plan_;
}

int64_t DataSet::first_row_of_epoch(int64_t epoch) const {
  while (static_cast<int64_t>(first_rows_.size()) <= epoch) {
    const auto known = static_cast<int64_t>(first_rows_.size()) - 1;
    first_rows_.push_back(first_rows_.back() + rows_per_epoch(known));
  }
  return first_rows_[static_cast<size_t>(epoch)];
}

int64_t DataSet::epoch_of_row(int64_t row) const {
  if (row < 0) run_error("the data has no step before 0");
  while (first_rows_.back() <= row) first_row_of_epoch(static_cast<int64_t>(first_rows_.size()));
  const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  return after - first_rows_.begin() - 1;
}

std::vector<PackedRow> DataSet::rows_of_step(int64_t step) const {
  std::vector<PackedRow> rows;
  for (int64_t row = step * options_.batch; row < (step + 1) * options_.batch; ++row) {
    const int64_t epoch = epoch_of_row(row);
    const int64_t index = row - first_row_of_epoch(epoch);
    rows.push_back(packed_row(samples_, plan_of_epoch(epoch)[static_cast<size_t>(index)], index));
  }
  return rows;
}

int64_t DataSet::epoch_of_step(int64_t step) const {
  return epoch_of_row(step * options_.batch);
}

int64_t DataSet::rows_per_epoch(int64_t epoch) const {
  return static_cast<int64_t>(plan_of_epoch(epoch).size());
}

int64_t DataSet::steps_of_epochs(int64_t epochs) const {
  return (first_row_of_epoch(epochs) + options_.batch - 1) / options_.batch;
}

int64_t DataSet::evaluation_batches() const {
  if (evaluation_plan_.empty()) evaluation_plan_ = make_plan(false, 0);
  return (static_cast<int64_t>(evaluation_plan_.size()) + options_.batch - 1) / options_.batch;
}

std::vector<PackedRow> DataSet::evaluation_rows(int64_t batch_index) const {
  if (batch_index < 0 || batch_index >= evaluation_batches()) {
    run_error("evaluation batch ", batch_index, " of ", evaluation_batches());
  }
  const int64_t begin = batch_index * options_.batch;
  const int64_t end = std::min(begin + options_.batch, static_cast<int64_t>(evaluation_plan_.size()));
  std::vector<PackedRow> rows;
  for (int64_t i = begin; i < end; ++i) {
    rows.push_back(packed_row(samples_, evaluation_plan_[static_cast<size_t>(i)], i));
  }
  return rows;
}

}  // namespace asterism::data
