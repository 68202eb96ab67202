#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "asterism/ops/cpu/query_block.h"

namespace asterism::ops {

/// Which compressed entries a query sees: begin .. end - 1 (int64 [T] each, as in Windows); undefined = none at all.
struct VisibleEntries {
  at::Tensor begin_T, end_T;
};

struct BlockShape {
  int64_t num_heads = 1;     // score rows per query
  int64_t window = 0;        // raw keys a query sees at most, itself included; 0 = none
  int64_t list_length = -1;  // selected entries per query, -1 = every visible entry
  int64_t width = 0;         // channels of an entry
  int64_t max_queries = 0;   // of a block; 0 = as many as products of whole matrices need
};

/// Cuts documents (`offsets` [n + 1]) into blocks that never cross a document and whose buffers stay within 8 MB (fp32)
/// where one query allows it, or that have `max_queries`. The cut depends on sizes only, never on the number of
/// threads. With lists, a block whose visible range is at most kRangeFactor lists long reads that range as one matrix
/// and masks what is not selected (one large product); a longer range is replaced by copies of the listed rows.
std::vector<QueryBlock> cut_into_blocks(const std::vector<int64_t>& offsets, const VisibleEntries& visible,
                                        const BlockShape& shape);

/// Offsets of the longest runs of queries with the same first visible entry: documents, as far as entries can tell.
std::vector<int64_t> equal_begin_runs(const VisibleEntries& visible);

/// Part boundaries [n + 1] that cut the blocks into at most `max_parts` consecutive parts of about equal work.
std::vector<int64_t> partition_blocks(const std::vector<QueryBlock>& blocks, int64_t max_parts);

/// The queries of a block as rows of `type`, [queries * H, P].
at::Tensor query_rows(const at::Tensor& x_THP, const QueryBlock& block, at::ScalarType type);

/// Calls task(0) .. task(n - 1), spread over the intra-op threads. ATen calls inside a task run on one thread whatever
/// the number of threads, and record no gradients.
void run_tasks(int64_t n, const std::function<void(int64_t)>& task);

/// run_tasks over blocks with independent results, interleaved: later queries of a document see more.
void for_each_block(const std::vector<QueryBlock>& blocks, const std::function<void(const QueryBlock&)>& body);

/// Writes the additive mask of the raw keys, 0 where `query - window < key <= query` and -inf elsewhere, to
/// mask_BN [queries of the block, raw keys of the block], fp32 or fp64.
void fill_window_mask(const QueryBlock& block, int64_t window, const at::Tensor& mask_BN);

/// Every index of `selected_TK` (int64 [T, K]) is -1 or an entry that its query sees; anything else is an error.
void check_selection(const at::Tensor& selected_TK, const VisibleEntries& visible);

/// The same for entries: visible ones, or the ones in `selected_TK` (int64, -1 = unused) when it is defined.
/// mask_BN is [queries, visible entries], or [queries, K] for a block of lists. A selected index that its query does
/// not see is an error; one that is repeated counts once.
void fill_entry_mask(const QueryBlock& block, const VisibleEntries& visible, const at::Tensor& selected_TK,
                     const at::Tensor& mask_BN);

}  // namespace asterism::ops
