#pragma once

#include <cstdint>

namespace asterism::ops {

/// Consecutive queries of one document, handled at once, and the keys that any of them sees.
struct QueryBlock {
  int64_t first = 0, last = 0;              // queries first .. last - 1
  int64_t key_first = 0;                    // raw keys key_first .. last - 1
  int64_t entry_first = 0, entry_last = 0;  // entries entry_first .. entry_last - 1
  bool lists = false;                       // each query reads its own list of entries, otherwise all read the range
  int64_t entries_read = 0;                 // by a query: the length of its list, or of the range

  int64_t num_queries() const { return last - first; }
  int64_t num_raw_keys() const { return last - key_first; }
  int64_t num_visible_entries() const { return entry_last - entry_first; }
};

}  // namespace asterism::ops
