#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include "asterism/data/loader.h"
#include "asterism/data/ordered_tasks.h"

namespace asterism::data {

struct ReaderOptions {
  int rank = 0;
  int ranks = 1;
  int64_t rows_at_once = 1;  // a rank's micro-batch
  int64_t workers = 0;       // threads that read ahead; 0 = rows are made when they are asked for
};

/// The rows of one rank, step after step, read ahead by worker threads: at least the next step is under way while the
/// caller works on the present one. What is read does not depend on the number of workers; an error of a worker is
/// thrown by `next` when its row is due.
class StepReader {
 public:
  /// Begins with the step at `start`. InputError when the data end before it or the rank is none of the ranks. `data`
  /// must outlive the reader.
  StepReader(const DataSet& data, const ReaderOptions& options, StreamPosition start);

  /// The rows of this rank in the next step: micro-batches of rows_at_once rows go to the ranks in turn, so that which
  /// rows make a micro-batch does not depend on the ranks. None when there are more ranks than micro-batches.
  std::vector<PackedRow> next();
  /// Where the step begins that `next` gives next. Rows read ahead do not count.
  StreamPosition position() const { return position_; }

 private:
  bool is_ours(int64_t row_of_step) const { return row_of_step / rows_at_once_ % ranks_ == rank_; }
  void begin_epoch();
  void submit_next();

  const DataSet& data_;
  int64_t workers_;
  int64_t batch_, rank_, ranks_, rows_at_once_;
  int64_t rows_per_step_ = 0;  // of this rank
  StreamPosition position_;
  // The row that is submitted next, and its number in its step.
  StreamPosition ahead_;
  int64_t ahead_in_step_ = 0;
  int64_t rows_ahead_ = 0;  // of the epoch of ahead_
  std::shared_ptr<const PlanReader> reader_;
  std::future<void> next_plan_;
  OrderedTasks<PackedRow> tasks_;  // last, so that its threads end first
};

/// Every row of the data once, in batches, in the order of the files: for evaluation.
class EvaluationReader {
 public:
  EvaluationReader(const DataSet& data, int64_t workers);

  /// The next batch, of fewer rows at the end; empty behind it. A set smaller than a batch is one batch.
  std::vector<PackedRow> next();

 private:
  int64_t batch_, rows_, most_pending_;
  int64_t submitted_ = 0;
  std::unique_ptr<const PlanReader> reader_;
  OrderedTasks<PackedRow> tasks_;
};

}  // namespace asterism::data
