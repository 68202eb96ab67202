#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <vector>

namespace asterism::ops {

/// A stream of T tokens cut into documents. Rows of a batch, and documents packed into a row, look the same from here:
/// nothing ever crosses the border of a document, and padding is not part of the stream.
struct Documents {
  std::vector<int64_t> offsets;  // [n + 1], offsets[0] = 0, offsets[n] = T; every document has at least one token
  at::Tensor position_T;         // int64 [T], position inside the document, from 0

  int64_t num_tokens() const { return offsets.back(); }
  int64_t num_documents() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

/// Documents of the given lengths (each at least 1; an empty list gives T = 0).
Documents make_documents(const std::vector<int64_t>& lengths);

/// The windows of one compression ratio (model-spec 2.4, 2.5, 2.10). Window w of a document covers its tokens
/// w * ratio .. w * ratio + ratio - 1; the tail of a document that fills no window makes no entry. Entries of all
/// documents lie one after the other: C in total.
struct Windows {
  int64_t ratio = 0;
  std::vector<int64_t> offsets;  // [n + 1], entries of document d are offsets[d] .. offsets[d + 1] - 1
  at::Tensor first_token_C;      // int64 [C], index in the stream of the window's first token
  at::Tensor position_C;         // int64 [C], its position inside the document: the entry's RoPE position
  at::Tensor has_previous_C;     // bool [C], false for the first window of a document
  at::Tensor visible_begin_T;    // int64 [T], a query at t sees entries visible_begin .. visible_end - 1:
  at::Tensor visible_end_T;      // int64 [T], those of its document whose whole window lies at or before t

  int64_t num_entries() const { return offsets.back(); }
};

Windows make_windows(const Documents& documents, int64_t ratio);

}  // namespace asterism::ops
