#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "asterism/data/sample.h"

namespace asterism::data {

/// What happens to a document of more than sequence_length tokens: an error, left out, or its left part kept.
enum class Overlong { Error, Drop, Truncate };
/// What happens to a document in which nothing is trained: left out or an error.
enum class WithoutTargets { Skip, Error };

struct FitOptions {
  int64_t sequence_length = 4096;
  Overlong overlong = Overlong::Error;
  WithoutTargets without_targets = WithoutTargets::Skip;
};

struct FitReport {
  int64_t kept = 0;
  int64_t dropped = 0;              // overlong, left out
  int64_t truncated = 0;            // overlong, left part kept
  int64_t tokens_lost = 0;          // of dropped and truncated documents
  int64_t trained_tokens_lost = 0;  // the trained ones among them
  int64_t without_targets = 0;      // left out because nothing in them is trained, among them by truncation

  FitReport& operator+=(const FitReport& other);
};

/// Makes the sample one that can be packed: at most sequence_length tokens and at least one trained token. False when
/// it is to be left out; counted either way. InputError naming the sample where the options want one.
bool fit_sample(Sample& sample, const FitOptions& options, FitReport& report);

struct PackingOptions {
  int64_t sequence_length = 4096;
  bool packing = true;    // false: one document a row
  int64_t window = 1024;  // documents looked at ahead of the oldest one
};

/// Which documents stand in which row.
struct RowPlan {
  std::vector<uint32_t> documents;  // row after row
  std::vector<uint64_t> begins{0};  // of each row in `documents`, and the end of the last

  int64_t rows() const { return static_cast<int64_t>(begins.size()) - 1; }
  std::span<const uint32_t> row(int64_t number) const;
};

/// Distributes whole documents, numbered in the order of `lengths`, over rows of at most sequence_length tokens; every
/// document stands in exactly one row.
/// Best fit over a sliding window: the row starts with the oldest document not yet placed and then takes the longest
/// one of the window that still fits, the older of equals. So a row holds documents that were near in the order, and
/// the result depends on the arguments alone. Time and memory are linear in the number of documents.
/// InputError when a length is above sequence_length.
RowPlan pack_documents(std::span<const uint32_t> lengths, const PackingOptions& options);

/// Lays a document behind those of the row. Its first weight becomes 0: no token of its own document predicts it, and
/// the one in front of it in the row belongs to another.
void append_document(PackedRow& row, const Sample& sample);

}  // namespace asterism::data
