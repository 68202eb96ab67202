#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "asterism/data/sample.h"

namespace asterism::data {

/// What happens to a document of more than sequence_length tokens: an error, left out, or its left part kept.
enum class Overlong { Error, Drop, Truncate };

struct FitReport {
  int64_t kept = 0;
  int64_t dropped = 0;              // overlong, left out
  int64_t truncated = 0;            // overlong, left part kept
  int64_t tokens_lost = 0;          // of dropped and truncated documents
  int64_t trained_tokens_lost = 0;  // the trained ones among them
  int64_t without_targets = 0;      // left out because nothing in them is trained, among them by truncation
};

/// The samples that can be packed: at most sequence_length tokens each and at least one trained token, in order.
/// InputError naming the sample when one is too long and `overlong` is Error.
std::vector<Sample> fit_samples(std::vector<Sample> samples, int64_t sequence_length, Overlong overlong,
                                FitReport& report);

struct PackingOptions {
  int64_t sequence_length = 4096;
  bool packing = true;    // false: one document a row
  int64_t window = 1024;  // documents looked at ahead of the oldest one
};

/// Distributes whole documents over rows of at most sequence_length tokens. `order` lists documents (indices into
/// `lengths`); the result lists the documents of each row, every one exactly once.
/// Best fit over a sliding window: the row starts with the oldest document not yet placed and then takes the longest
/// one of the window that still fits, the older of equals. So a row holds documents that were near in `order`, and the
/// result depends on the arguments alone. Every length must be at most sequence_length.
std::vector<std::vector<int64_t>> pack_documents(std::span<const int64_t> lengths, std::span<const int64_t> order,
                                                 const PackingOptions& options);

/// The documents laid one after the other. The first weight of each is 0: no token of its own document predicts it, and
/// the one in front of it in the row belongs to another.
PackedRow packed_row(std::span<const Sample> samples, std::span<const int64_t> documents, int64_t index);

}  // namespace asterism::data
