#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "asterism/ops/cpu/attention_block.h"

namespace asterism::ops::cpu {

/// Says which keys the queries of a block read, tile by tile. Its memory is reused from block to block.
class AttentionPlan {
 public:
  /// `grad` may be null; at most `max_keys` keys (even) a tile, `element_size` bytes an element of the key tables.
  AttentionPlan(const AttentionArgs& args, const AttentionGradArgs* grad, int64_t max_keys, int64_t element_size);

  /// The raw keys, then the entries: as a range of the visible ones, as the union of what the queries selected, or as a
  /// list per query, whichever multiplies less. The choice depends on the block alone.
  void for_each_tile(const QueryBlock& block, const std::function<void(const KeyTile&)>& run);

  /// Every entry that a query of the block sees, in order, selected or not.
  void visible_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run);
  /// What each query selected, in its order: for the tile's query place[j] is where key j stands in its list.
  using RunListed = std::function<void(const KeyTile& tile, const int64_t* place)>;
  void listed_tiles(const QueryBlock& block, const RunListed& run);

 private:
  struct Source {
    const KeyTable* table;
    const RowSums* sums;  // null or without rows: no gradient
  };

  void raw_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run);
  void union_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run);
  void list_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run);
  void read_lists(const QueryBlock& block);
  void unite_lists(const QueryBlock& block);  // into keys_ and place_
  /// Tiles of keys_, each seen by the queries from the one at which it becomes visible.
  void entry_tiles(const QueryBlock& block, bool selected, const std::function<void(const KeyTile&)>& run);
  /// A tile of keys_[begin] .. keys_[end - 1] without ranges.
  KeyTile open_tile(const Source& source, int64_t begin, int64_t end);
  KeyTile with_ranges(KeyTile tile) const;
  Source raw_source() const { return {&args_.raw, grad_ ? &grad_->raw : nullptr}; }
  Source entry_source() const { return {&args_.entries, grad_ ? &grad_->entries : nullptr}; }

  const AttentionArgs& args_;
  const AttentionGradArgs* grad_;
  int64_t max_keys_, element_size_;
  std::vector<int64_t> keys_;  // row numbers, ascending
  std::vector<const void*> rows_;
  std::vector<float*> grad_rows_;
  std::vector<int32_t> query_begin_, query_end_, key_begin_, key_end_;
  std::vector<int64_t> lists_, list_begin_;  // what each query selected, ascending, once each
  std::vector<int32_t> place_;               // of a visible entry in keys_; -1: nobody selected it
  std::vector<uint8_t> selected_;            // [keys_, queries]
};

}  // namespace asterism::ops::cpu
