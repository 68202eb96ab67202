#pragma once

#include <cstdint>

#include "asterism/ops/cpu/query_block.h"

namespace asterism::ops::cpu {

/// The lightning indexer of ops/indexer.h in fp32 on raw pointers, for CPUs with AVX2 and FMA at least. Keys are read
/// in panels, transposed once per call; a score is the sum over heads in their order, the same bits for any division
/// into blocks. Scratch memory belongs to the thread (scratch.h).

bool has_indexer_kernels();

/// Floats of the panels of `num_keys` keys of `width` channels.
int64_t index_panels_size(int64_t num_keys, int64_t width);

struct IndexArgs {
  int64_t num_heads;             // Hi
  int64_t width;                 // Di
  int64_t num_keys;              // C
  const float* q;                // [T, Hi, Di]
  const float* weight;           // [T, Hi]
  float* panels;                 // made by pack_index_keys
  const int64_t* visible_begin;  // [T], a query sees the entries visible_begin .. visible_end - 1
  const int64_t* visible_end;    // [T]
};

/// Panels number begin .. end - 1 of num_index_panels(num_keys) of keys [C, Di].
int64_t num_index_panels(int64_t num_keys);
void pack_index_keys(const IndexArgs& args, const float* keys, int64_t begin, int64_t end);

/// score[i * stride + c] for query block.first + i and entry block.entry_first + c; -inf where it does not see it.
void index_scores(const IndexArgs& args, const QueryBlock& block, float* score, int64_t stride);

/// selected [T, k]: the k visible entries with the largest scores, ascending, ties to the smaller index, then -1; where
/// at most k are visible all of them, without scoring. Returns the first query with a score that is NaN, or -1.
int64_t index_topk(const IndexArgs& args, const QueryBlock& block, int64_t k, int64_t* selected);

}  // namespace asterism::ops::cpu
