#pragma once

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "asterism/parallel/sharded_model.h"

namespace asterism::train {

/// What the ranks of a run did in a step, for metrics.jsonl. A run on one rank has no such lines.
class RankMetrics {
 public:
  explicit RankMetrics(const parallel::ShardedModel& shared);

  /// Since the last call, or since the object was made. All ranks call it, with the seconds that the step took them;
  /// each gets
  ///   rank_seconds, rank_wait_seconds, rank_peak_memory_bytes: one number per rank; waiting is for other ranks and for
  ///     bytes, the rest of the seconds is the rank's own work;
  ///   peak_memory_bytes: the largest of the ranks;
  ///   communication: by "<group> <collective>", `calls` (of one rank), `bytes` sent by all ranks together, and
  ///     `wait_seconds` and `overlap_seconds`, means over the ranks: time that a rank stood still, and time that it
  ///     computed between the start of the collective and the wait for it.
  nlohmann::ordered_json of_step(double seconds);

 private:
  at::Tensor totals() const;

  const parallel::MeshComms& comms_;
  at::Tensor before_KV_;  // totals at the last call
};

}  // namespace asterism::train
