#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "asterism/data/packing.h"
#include "asterism/data/rows.h"
#include "asterism/data/sample.h"

namespace asterism::data {

struct DataSetOptions {
  PackingOptions packing;
  Overlong overlong = Overlong::Error;
  bool shuffle = true;
  uint64_t seed = 0;
  int64_t batch = 1;  // rows per step
};

struct DataSetReport {
  ReadReport read;
  FitReport fit;
  int64_t samples = 0;
  int64_t tokens = 0;          // of one epoch
  int64_t trained_tokens = 0;  // of one epoch
  int64_t rows = 0;            // of epoch 0
  double fill_ratio = 0.0;     // tokens / (rows * sequence_length) of epoch 0
};

/// All samples of some files, held in memory, and the endless stream of packed rows that training reads from them.
///
/// Epoch e visits the samples in a permutation given by (seed, e) and packs them anew, so epochs may differ by a few in
/// their number of rows. The stream is epoch 0, epoch 1, ... without a gap; step s takes the rows
/// [s * batch, (s + 1) * batch) of it. So every row of every epoch is used exactly once, a batch that an epoch cannot
/// fill goes on with the next epoch, and what a step sees depends on (data, options, step) alone.
///
/// Calls cache the plan of recent epochs: not for concurrent use.
class DataSet {
 public:
  /// Reads `sources` (each a file, folder or pattern). InputError when they hold no trained token.
  DataSet(const std::vector<std::string>& sources, const RowOptions& row_options, const DataSetOptions& options);
  /// From samples in memory.
  DataSet(std::vector<Sample> samples, const DataSetOptions& options);

  const DataSetReport& report() const { return report_; }

  /// The rows of a step; PackedRow::index is the number of the row in its epoch.
  std::vector<PackedRow> rows_of_step(int64_t step) const;
  /// Epoch of the first row of a step.
  int64_t epoch_of_step(int64_t step) const;
  int64_t rows_per_epoch(int64_t epoch) const;
  /// Steps after which every row of the first `epochs` epochs was used. The last step may reach into the next epoch.
  int64_t steps_of_epochs(int64_t epochs) const;

  /// Evaluation reads every row once, packed in the order of the files whatever `shuffle` says. The last batch may be
  /// short, so a set smaller than a batch works.
  int64_t evaluation_batches() const;
  std::vector<PackedRow> evaluation_rows(int64_t batch_index) const;

 private:
  using Plan = std::vector<std::vector<int64_t>>;  // documents of each row

  void initialise(std::vector<Sample> samples);
  Plan make_plan(bool shuffle, int64_t epoch) const;
  const Plan& plan_of_epoch(int64_t epoch) const;
  int64_t first_row_of_epoch(int64_t epoch) const;
  int64_t epoch_of_row(int64_t row) const;

  DataSetOptions options_;
  DataSetReport report_;
  std::vector<Sample> samples_;
  std::vector<int64_t> lengths_;
  mutable Plan plan_, evaluation_plan_;
  mutable int64_t planned_epoch_ = -1;
  mutable std::vector<int64_t> first_rows_{0};  // of the epochs known so far, in the stream
};

}  // namespace asterism::data
