#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace asterism::data {

/// Lengths of documents, counted.
class LengthStats {
 public:
  void add(int64_t length);

  int64_t count() const { return count_; }
  double mean() const;
  /// The smallest length that at least this share (0 to 1) of the documents does not exceed; 0 without documents.
  int64_t percentile(double share) const;

  /// Documents of lengths (above, up_to].
  struct Bar {
    int64_t above, up_to;
    int64_t documents;
  };
  /// Powers of two from the shortest document to the longest.
  std::vector<Bar> histogram() const;

 private:
  std::map<int64_t, int64_t> documents_;  // by length
  int64_t count_ = 0, sum_ = 0;
};

/// What becomes of the documents at one `sequence_length`.
struct FitSummary {
  int64_t sequence_length = 0;
  int64_t dropped = 0;  // documents that are longer
  int64_t dropped_tokens = 0;
  int64_t tokens = 0;  // of the others
  int64_t rows = 0;    // that these are packed into

  /// Share of the rows that holds tokens; 0 without rows.
  double fill_ratio() const;
};

/// Packs documents, in the order in which they come, at one sequence_length. Memory is bounded: every million of
/// documents is packed by itself.
class FitCounter {
 public:
  explicit FitCounter(int64_t sequence_length) : summary_{.sequence_length = sequence_length} {}
  void add(int64_t length);
  FitSummary summary() const;

 private:
  int64_t pending_rows() const;

  FitSummary summary_;
  std::vector<uint32_t> pending_;  // documents that are not packed yet
};

}  // namespace asterism::data
