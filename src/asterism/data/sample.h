#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace asterism::data {

/// One document ready for training: token ids and the weight of each token as a target, unshifted: weight 0 means the
/// token is context only. The trainer shifts (position t predicts token t + 1), so weights[0] is never used.
struct Sample {
  std::vector<int64_t> ids;
  std::vector<float> weights;  // same length, >= 0
  std::string origin;          // "chats.jsonl:17", for messages

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  /// Tokens that will be trained: weight > 0 at positions 1 and later.
  int64_t trained_tokens() const;
};

/// Whole documents laid one after the other into at most `sequence_length` tokens. No document crosses a row.
struct PackedRow {
  std::vector<int64_t> ids;
  std::vector<float> weights;
  std::vector<int64_t> lengths;  // of the documents, in order; their sum is ids.size()
  int64_t index = 0;             // number of the row in its epoch: names it in random streams
};

}  // namespace asterism::data
