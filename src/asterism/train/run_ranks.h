#pragma once

#include <cstdint>
#include <string>

#include "asterism/parallel/sharded_model.h"

namespace asterism::train {

/// The ranks of a run as its loop sees them; a run on one rank has one. What touches the run folder is done by the
/// first, what is decided by a signal or a clock is decided by all together.
class RunRanks {
 public:
  /// nullptr: one rank.
  explicit RunRanks(parallel::ShardedModel* shared) : shared_(shared) {}

  int rank() const { return shared_ != nullptr ? world().rank() : 0; }
  int size() const { return shared_ != nullptr ? world().size() : 1; }
  bool is_first() const { return rank() == 0; }

  struct Requests {
    bool stop = false, save = false;
  };
  /// What any rank was asked for.
  Requests any(const Requests& own) const;
  /// The text that the first rank has.
  std::string of_first(const std::string& own, const char* what) const;
  /// For messages: where the run is.
  void set_step(int64_t step) const;

 private:
  dist::Comm& world() const { return *shared_->comms().world; }

  parallel::ShardedModel* shared_;
};

}  // namespace asterism::train
