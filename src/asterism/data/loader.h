#pragma once

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "asterism/data/index_cache.h"
#include "asterism/data/plan_reader.h"
#include "asterism/data/stream_position.h"

namespace asterism::data {

struct DataSetOptions {
  std::vector<double> weights{};  // of the sources; empty = all 1
  bool packing = true;            // false: one document a row
  bool shuffle = true;
  int64_t shuffle_buffer = 10000;  // samples of a source that can be read in order only
  uint64_t seed = 0;
  int64_t batch = 1;  // rows per step over all ranks
};

/// The endless stream of packed rows that training reads from prepared data.
///
/// Epoch e visits the samples in an order given by (seed, e) (epoch_order.h) and packs them anew, so epochs may differ
/// by a few in their number of rows. The stream is epoch 0, epoch 1, ... without a gap; a step takes the next `batch`
/// rows of it, of which rank r of n takes those from batch * r / n to batch * (r + 1) / n. So every row of every epoch
/// is used exactly once, a batch that an epoch cannot fill goes on with the next epoch, and what a step sees depends on
/// (data, options, step) alone.
///
/// All members may be called by many threads.
class DataSet {
 public:
  /// `rows` and `fit` are those of the preparation. InputError when the data have no token to train.
  DataSet(PreparedData data, RowOptions rows, const FitOptions& fit, const DataSetOptions& options);

  const PreparationReport& report() const { return data_.index->report(); }
  const PreparedData& prepared() const { return data_; }
  const DataSetOptions& options() const { return options_; }
  const SampleReader& samples() const { return samples_; }
  const StreamIdentity& identity() const { return identity_; }

  int64_t rows_per_epoch(int64_t epoch) const;
  /// Share of the rows of an epoch that holds tokens.
  double fill_ratio(int64_t epoch) const;
  /// Steps after which every row of the first `epochs` epochs was used. The last step may reach into the next epoch.
  int64_t steps_of_epochs(int64_t epochs) const;
  StreamPosition position_of_step(int64_t step) const { return advance({}, step * options_.batch); }
  /// The position `rows` rows behind.
  StreamPosition advance(StreamPosition position, int64_t rows) const;
  /// Epoch of the first row behind the position.
  int64_t epoch_at(StreamPosition position) const { return advance(position, 1).epoch; }

  /// The rows of a step that a rank takes; PackedRow::index is the number of the row in its epoch. Reading step after
  /// step is the work of StepReader.
  std::vector<PackedRow> rows_of_step(int64_t step, int rank = 0, int ranks = 1) const;

  /// Made when first asked for, and kept while it is one of the last two.
  std::shared_ptr<const EpochPlan> plan(int64_t epoch) const;
  /// Every row once, packed in the order of the files whatever `shuffle` and `weights` say: for evaluation.
  std::shared_ptr<const EpochPlan> evaluation_plan() const;

 private:
  using Plan = std::shared_ptr<const EpochPlan>;

  StreamIdentity make_identity() const;

  PreparedData data_;
  FitOptions fit_;
  DataSetOptions options_;
  SampleReader samples_;
  std::vector<Extent> extents_;
  OrderOptions order_;
  PackingOptions packing_;
  StreamIdentity identity_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_future<Plan>> plans_;  // by epoch
  mutable std::map<int64_t, int64_t> rows_;                    // of all epochs planned so far
};

}  // namespace asterism::data
