#include "asterism/data/step_reader.h"

#include <algorithm>
#include <utility>

#include "asterism/core/error.h"

namespace asterism::data {
namespace {

/// Rows that may be under way: one step ahead, and enough that no worker waits.
int64_t most_pending(int64_t workers, int64_t rows_per_step) {
  constexpr int64_t kRowsPerWorker = 4;
  return workers == 0 ? 1 : rows_per_step + std::max(rows_per_step, kRowsPerWorker * workers);
}

}  // namespace

StepReader::StepReader(const DataSet& data, const ReaderOptions& options, StreamPosition start)
    : data_(data),
      workers_(options.workers),
      batch_(data.options().batch),
      rank_(options.rank),
      ranks_(options.ranks),
      rows_at_once_(options.rows_at_once),
      position_(start),
      ahead_(start),
      tasks_(options.workers) {
  if (options.ranks < 1 || options.rank < 0 || options.rank >= options.ranks) {
    run_error("the data have no rank ", options.rank, " of ", options.ranks);
  }
  if (rows_at_once_ < 1) run_error("a micro-batch has at least one row, got ", rows_at_once_);
  const int64_t rows = data.rows_per_epoch(start.epoch);
  if (start.row > rows) {
    input_error("the data have no row ", start.row, " in epoch ", start.epoch, ", which has ", rows);
  }
  for (int64_t row = 0; row < batch_; ++row) rows_per_step_ += is_ours(row);
  begin_epoch();
}

void StepReader::begin_epoch() {
  const auto plan = data_.plan(ahead_.epoch);
  rows_ahead_ = plan->rows.rows();
  const auto is_wanted = [&](int64_t row) {
    return row >= ahead_.row && is_ours((row - ahead_.row + ahead_in_step_) % batch_);
  };
  reader_ = std::make_shared<const PlanReader>(data_.samples(), plan, is_wanted);
}

void StepReader::submit_next() {
  for (bool submitted = false; !submitted;) {
    while (ahead_.row == rows_ahead_) {
      ahead_ = {ahead_.epoch + 1, 0};
      begin_epoch();
    }
    submitted = is_ours(ahead_in_step_);
    if (submitted) tasks_.submit([reader = reader_, row = ahead_.row] { return reader->read(row); });
    ++ahead_.row;
    ahead_in_step_ = (ahead_in_step_ + 1) % batch_;
    // Nobody is to wait for a plan at the end of an epoch.
    if (workers_ > 0 && ahead_.row == rows_ahead_ / 2 + 1) {
      next_plan_ = std::async(std::launch::async, [&data = data_, next = ahead_.epoch + 1] { data.plan(next); });
    }
  }
}

std::vector<PackedRow> StepReader::next() {
  const auto pending = static_cast<size_t>(most_pending(workers_, rows_per_step_));
  std::vector<PackedRow> rows;
  for (int64_t row = 0; row < rows_per_step_; ++row) {
    while (tasks_.pending() < pending) submit_next();
    rows.push_back(tasks_.take());
  }
  position_ = data_.advance(position_, batch_);
  return rows;
}

EvaluationReader::EvaluationReader(const DataSet& data, int64_t workers)
    : batch_(data.options().batch), most_pending_(most_pending(workers, batch_)), tasks_(workers) {
  auto plan = data.evaluation_plan();
  rows_ = plan->rows.rows();
  reader_ = std::make_unique<const PlanReader>(data.samples(), std::move(plan), [](int64_t) { return true; });
}

std::vector<PackedRow> EvaluationReader::next() {
  std::vector<PackedRow> rows;
  while (static_cast<int64_t>(rows.size()) < batch_) {
    while (submitted_ < rows_ && static_cast<int64_t>(tasks_.pending()) < most_pending_) {
      tasks_.submit([this, row = submitted_++] { return reader_->read(row); });
    }
    if (tasks_.pending() == 0) break;
    rows.push_back(tasks_.take());
  }
  return rows;
}

}  // namespace asterism::data
