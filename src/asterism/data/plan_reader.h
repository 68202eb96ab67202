#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "asterism/data/epoch_plan.h"
#include "asterism/data/sample_reader.h"

namespace asterism::data {

/// Reads packed rows of a plan: those that `is_wanted` names, each once. Rows of seekable files are read where they
/// stand. Of any other file the reader streams once from the start, keeping only what rows that are wanted and not yet
/// read need: at most about shuffle_buffer + the packing window of samples, when rows are read roughly in order.
class PlanReader {
 public:
  PlanReader(const SampleReader& samples, std::shared_ptr<const EpochPlan> plan,
             const std::function<bool(int64_t row)>& is_wanted);
  ~PlanReader();

  /// Any thread, in any order. RunError when the data have changed.
  PackedRow read(int64_t row) const;

 private:
  class Stream;

  Sample read_position(uint32_t position) const;

  struct StreamOfSamples {
    uint32_t first, last;  // numbers in the index
    std::unique_ptr<Stream> stream;
  };

  const SampleReader& samples_;
  std::shared_ptr<const EpochPlan> plan_;
  std::vector<bool> wanted_;  // by position in the order; empty without streams
  std::vector<StreamOfSamples> streams_;
};

}  // namespace asterism::data
