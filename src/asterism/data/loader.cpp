#include "asterism/data/loader.h"

#include <bit>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/data/fingerprint.h"
#include "asterism/data/step_reader.h"

namespace asterism::data {
namespace {

constexpr size_t kKeptPlans = 2;  // the present epoch's and the next one's

std::string why_nothing_is_trained(const PreparationReport& report) {
  std::string reasons = text(report.rows, " rows, ", report.bad_rows, " bad, ", report.fit.dropped, " too long, ",
                             report.fit.without_targets, " with nothing to train");
  for (const std::string& bad : report.first_bad) reasons += "\n  " + bad;
  return reasons;
}

std::vector<double> weights_of(const DataIndex& index, const std::vector<double>& weights) {
  if (!weights.empty()) return weights;
  return std::vector<double>(index.files().empty() ? 0 : static_cast<size_t>(index.files().back().source) + 1, 1.0);
}

/// A mixture of so little that whole epochs would be empty has no length that anyone could want.
void check_weights(const std::vector<Extent>& extents) {
  double visits = 0.0;
  for (const Extent& extent : extents) visits += extent.weight * extent.count;
  if (visits < 1.0) {
    input_error("the weights of data.train let an epoch read ", visits, " samples; at least one is needed, raise them");
  }
}

}  // namespace

DataSet::DataSet(PreparedData data, RowOptions rows, const FitOptions& fit, const DataSetOptions& options)
    : data_(std::move(data)),
      fit_(fit),
      options_(options),
      samples_(data_.index, std::move(rows), fit),
      extents_(data_.index->extents(weights_of(*data_.index, options.weights))),
      order_{options.shuffle, options.seed, options.shuffle_buffer},
      packing_{.sequence_length = fit.sequence_length, .packing = options.packing} {
  if (options_.batch < 1) input_error("train.batch must be at least 1, got ", options_.batch);
  if (data_.index->entries().empty()) {
    input_error("the data has no token to train: ", why_nothing_is_trained(report()));
  }
  check_weights(extents_);
  identity_ = make_identity();
}

StreamIdentity DataSet::make_identity() const {
  Fingerprint stream;
  stream.add(data_.index->fingerprint());
  for (const Extent& extent : extents_) {
    stream.add(extent.count);
    stream.add(std::bit_cast<uint64_t>(extent.weight));
    stream.add(static_cast<uint64_t>(extent.seekable));
  }
  for (const auto number :
       {static_cast<int64_t>(order_.shuffle), static_cast<int64_t>(order_.seed), order_.shuffle_buffer,
        packing_.sequence_length, static_cast<int64_t>(packing_.packing), packing_.window}) {
    stream.add(static_cast<uint64_t>(number));
  }
  return {stream.text(), report().samples, report().tokens};
}

std::shared_ptr<const EpochPlan> DataSet::plan(int64_t epoch) const {
  const int64_t wanted = epochs_are_alike(extents_, order_) ? 0 : epoch;
  std::packaged_task<Plan()> task;
  std::shared_future<Plan> result;
  {
    const std::lock_guard lock(mutex_);
    const auto found = plans_.find(wanted);
    if (found != plans_.end()) {
      result = found->second;
    } else {
      task = std::packaged_task<Plan()>([this, wanted] {
        return std::make_shared<const EpochPlan>(
            make_plan(*data_.index, epoch_order(extents_, order_, wanted), packing_));
      });
      result = plans_[wanted] = task.get_future().share();
      if (plans_.size() > kKeptPlans) {
        plans_.erase(plans_.begin()->first == wanted ? std::prev(plans_.end()) : plans_.begin());
      }
    }
  }
  if (!task.valid()) return result.get();
  task();  // not under the lock: another thread may want a plan that is there
  const Plan made = result.get();
  const std::lock_guard lock(mutex_);
  rows_[wanted] = made->rows.rows();
  return made;
}

int64_t DataSet::rows_per_epoch(int64_t epoch) const {
  {
    const std::lock_guard lock(mutex_);
    const auto known = rows_.find(epoch);
    if (known != rows_.end()) return known->second;
  }
  return plan(epoch)->rows.rows();
}

double DataSet::fill_ratio(int64_t epoch) const {
  const auto made = plan(epoch);
  const double room = static_cast<double>(made->rows.rows()) * static_cast<double>(packing_.sequence_length);
  return static_cast<double>(made->tokens) / room;
}

int64_t DataSet::steps_of_epochs(int64_t epochs) const {
  int64_t rows = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) rows += rows_per_epoch(epoch);
  return (rows + options_.batch - 1) / options_.batch;
}

StreamPosition DataSet::advance(StreamPosition position, int64_t rows) const {
  if (rows < 0 || position.epoch < 0 || position.row < 0) run_error("the data has no step before 0");
  for (;;) {
    const int64_t left = rows_per_epoch(position.epoch) - position.row;
    if (rows <= left) return {position.epoch, position.row + rows};
    rows -= left;
    position = {position.epoch + 1, 0};
  }
}

std::vector<PackedRow> DataSet::rows_of_step(int64_t step, int rank, int ranks) const {
  return StepReader(*this, {.rank = rank, .ranks = ranks}, position_of_step(step)).next();
}

std::shared_ptr<const EpochPlan> DataSet::evaluation_plan() const {
  return std::make_shared<const EpochPlan>(make_plan(*data_.index, file_order(*data_.index, extents_), packing_));
}

}  // namespace asterism::data
