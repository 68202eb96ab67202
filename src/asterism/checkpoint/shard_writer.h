#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "asterism/checkpoint/shard_plan.h"

namespace asterism::checkpoint {

/// Whole rows of one matrix of a target: the unit of work. Rows of a tensor without matrices are those of its first
/// dimension; a vector is one row.
struct Chunk {
  size_t target = 0;
  int64_t expert = 0, matrix = 0;  // of packed experts
  int64_t row = 0, rows = 0;       // `row` begins a block
  int64_t columns = 0;
};

/// Makes the bytes of a chunk in its target's form: `data` and `scale` (null for plain forms) are to be filled
/// completely. Called from several threads at a time; `worker` tells them apart.
using FillChunk =
    std::function<void(const TargetTensor& target, const Chunk& chunk, std::byte* data, std::byte* scale, int worker)>;

struct ShardWriterOptions {
  int workers = 1;
  std::set<std::string> skip = {};  // files that exist already
  /// Called for each file that is complete and synced, one at a time: its name, size and CRC-32C.
  std::function<void(const PlannedFile& file, uint32_t checksum)> on_file = {};
  /// Called now and then with the bytes written so far, those of skipped files included; one call at a time.
  std::function<void(uint64_t bytes)> on_progress = {};
};

/// How many threads keep reading, converting and writing busy at the same time.
int default_writer_threads();

/// Writes the files of a plan into the existing `folder`. The chunks go to the worker threads in the order of the
/// files, so that reading, converting and writing overlap and few files are open at a time; memory is bounded by the
/// chunks at work. A file has the name <name>.part until it is complete and synced. RunError when something cannot be
/// written, and whatever `fill` throws; the .part files stay.
void write_planned(const std::filesystem::path& folder, const std::vector<TargetTensor>& targets, const ShardPlan& plan,
                   const FillChunk& fill, const ShardWriterOptions& options);

}  // namespace asterism::checkpoint
