#include "asterism/ops/query_blocks.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <limits>

namespace asterism::ops {

namespace {

constexpr int64_t kScoreRows = 512;        // per block: enough rows for an efficient product
constexpr int64_t kMinQueries = 8;         // fewer would waste most of the shared window slice
constexpr int64_t kMaxQueries = 64;        // more would widen it
constexpr int64_t kMaxElements = 2 << 20;  // per buffer of a block: 8 MB in fp32
constexpr int64_t kRangeFactor = 3;        // a product over copied rows costs about this much more per pair
constexpr int64_t kMaxGroups = 64;

// The largest buffer of the block: its scores, or the copies of its listed rows.
int64_t buffer_elements(const QueryBlock& block, const BlockShape& shape) {
  const int64_t num_entries = block.lists ? shape.list_length : block.num_visible_entries();
  const int64_t scores = shape.num_heads * (block.num_raw_keys() + num_entries);
  const int64_t copies = block.lists ? shape.list_length * shape.width : 0;
  return block.num_queries() * std::max(scores, copies);
}

QueryBlock make_block(int64_t first, int64_t last, int64_t document_first, const VisibleEntries& visible,
                      const BlockShape& shape) {
  QueryBlock block{.first = first, .last = last, .key_first = last};
  if (shape.window > 0) block.key_first = std::max(document_first, first - shape.window + 1);
  if (!visible.begin_T.defined()) return block;
  block.entry_first = visible.begin_T.const_data_ptr<int64_t>()[first];
  block.entry_last = visible.end_T.const_data_ptr<int64_t>()[last - 1];
  block.lists = shape.list_length >= 0 && block.num_visible_entries() > kRangeFactor * shape.list_length;
  block.entries_read = block.lists ? shape.list_length : block.num_visible_entries();
  return block;
}

int64_t work_of(const QueryBlock& block) {
  return block.num_queries() * (block.num_raw_keys() + block.entries_read + 1);
}

void check_index(int64_t index, int64_t query, int64_t begin, int64_t end) {
  TORCH_CHECK(index == -1 || (index >= begin && index < end), "[selected entries] query ", query,
              " may select entries ", begin, " .. ", end - 1, " or -1, got ", index);
}

// Row i of the mask covers the visible range of the block: set what query i sees.
template <typename T>
void mark_range(T* mask, const QueryBlock& block, int64_t begin, int64_t end) {
  std::fill(mask + begin - block.entry_first, mask + end - block.entry_first, T(0));
}

template <typename T>
void mark_selected(T* mask, const QueryBlock& block, const int64_t* selected, int64_t count) {
  int64_t largest = -1;
  for (int64_t k = 0; k < count; ++k) {
    if (selected[k] < 0) continue;
    if (!block.lists) {
      mask[selected[k] - block.entry_first] = T(0);
    } else if (selected[k] > largest || std::find(selected, selected + k, selected[k]) == selected + k) {
      mask[k] = T(0);  // a column of its own for every index, so a repeated one would count twice
    }
    largest = std::max(largest, selected[k]);
  }
}

}  // namespace

std::vector<QueryBlock> cut_into_blocks(const std::vector<int64_t>& offsets, const VisibleEntries& visible,
                                        const BlockShape& shape) {
  const int64_t enough = std::clamp(kScoreRows / std::max<int64_t>(shape.num_heads, 1), kMinQueries, kMaxQueries);
  const int64_t wanted = shape.max_queries > 0 ? shape.max_queries : enough;
  std::vector<QueryBlock> blocks;
  for (size_t d = 0; d + 1 < offsets.size(); ++d) {
    for (int64_t first = offsets[d]; first < offsets[d + 1]; first = blocks.back().last) {
      int64_t count = std::min(wanted, offsets[d + 1] - first);
      QueryBlock block = make_block(first, first + count, offsets[d], visible, shape);
      while (shape.max_queries == 0 && count > 1 && buffer_elements(block, shape) > kMaxElements) {
        count /= 2;
        block = make_block(first, first + count, offsets[d], visible, shape);
      }
      blocks.push_back(block);
    }
  }
  return blocks;
}

std::vector<int64_t> equal_begin_runs(const VisibleEntries& visible) {
  const auto* begin = visible.begin_T.const_data_ptr<int64_t>();
  const int64_t num_queries = visible.begin_T.size(0);
  std::vector<int64_t> offsets{0};
  for (int64_t t = 1; t < num_queries; ++t) {
    if (begin[t] != begin[t - 1]) offsets.push_back(t);
  }
  if (num_queries > 0) offsets.push_back(num_queries);
  return offsets;
}

std::vector<int64_t> partition_blocks(const std::vector<QueryBlock>& blocks, int64_t max_parts) {
  int64_t total = 0, done = 0;
  for (const QueryBlock& block : blocks) total += work_of(block);
  std::vector<int64_t> boundaries{0};
  for (size_t i = 0; i < blocks.size(); ++i) {
    done += work_of(blocks[i]);
    const auto parts = static_cast<int64_t>(boundaries.size());
    if (done * max_parts >= total * parts) boundaries.push_back(static_cast<int64_t>(i) + 1);
  }
  return boundaries;
}

at::Tensor query_rows(const at::Tensor& x_THP, const QueryBlock& block, at::ScalarType type) {
  return x_THP.slice(0, block.first, block.last).reshape({-1, x_THP.size(2)}).to(type);
}

void run_tasks(int64_t n, const std::function<void(int64_t)>& task) {
  // At least two, so that a parallel region opens whenever there is more than one thread: products inside a region run
  // on one thread, as they do when one thread is all there is.
  at::parallel_for(0, std::max<int64_t>(n, 2), 1, [&](int64_t begin, int64_t end) {
    const at::AutoDispatchBelowADInplaceOrView no_autograd;  // worker threads do not inherit the caller's grad mode
    for (int64_t i = begin; i < std::min(end, n); ++i) task(i);
  });
}

void for_each_block(const std::vector<QueryBlock>& blocks, const std::function<void(const QueryBlock&)>& body) {
  const size_t num_groups = std::min<size_t>(blocks.size(), kMaxGroups);
  run_tasks(static_cast<int64_t>(num_groups), [&](int64_t group) {
    for (auto i = static_cast<size_t>(group); i < blocks.size(); i += num_groups) body(blocks[i]);
  });
}

void check_selection(const at::Tensor& selected_TK, const VisibleEntries& visible) {
  const at::Tensor lists_TK = selected_TK.contiguous();
  const int64_t length = lists_TK.size(1);
  const auto* begin = visible.begin_T.const_data_ptr<int64_t>();
  const auto* end = visible.end_T.const_data_ptr<int64_t>();
  const auto* list = lists_TK.const_data_ptr<int64_t>();
  at::parallel_for(0, lists_TK.size(0), 64, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      for (int64_t k = 0; k < length; ++k) check_index(list[t * length + k], t, begin[t], end[t]);
    }
  });
}

void fill_window_mask(const QueryBlock& block, int64_t window, const at::Tensor& mask_BN) {
  AT_DISPATCH_FLOATING_TYPES(mask_BN.scalar_type(), "fill_window_mask", [&] {
    for (int64_t t = block.first; t < block.last; ++t) {
      auto* mask = mask_BN.data_ptr<scalar_t>() + (t - block.first) * mask_BN.stride(0);
      std::fill(mask, mask + block.num_raw_keys(), -std::numeric_limits<scalar_t>::infinity());
      const int64_t oldest = std::max(block.key_first, t - window + 1);
      std::fill(mask + oldest - block.key_first, mask + t + 1 - block.key_first, scalar_t(0));
    }
  });
}

void fill_entry_mask(const QueryBlock& block, const VisibleEntries& visible, const at::Tensor& selected_TK,
                     const at::Tensor& mask_BN) {
  const auto* begin = visible.begin_T.const_data_ptr<int64_t>();
  const auto* end = visible.end_T.const_data_ptr<int64_t>();
  const at::Tensor lists_BK = selected_TK.defined() ? selected_TK.slice(0, block.first, block.last).contiguous()
                                                    : at::empty({block.num_queries(), 0}, at::kLong);
  const int64_t list_length = lists_BK.size(1);
  AT_DISPATCH_FLOATING_TYPES(mask_BN.scalar_type(), "fill_entry_mask", [&] {
    for (int64_t t = block.first; t < block.last; ++t) {
      auto* mask = mask_BN.data_ptr<scalar_t>() + (t - block.first) * mask_BN.stride(0);
      std::fill(mask, mask + mask_BN.size(1), -std::numeric_limits<scalar_t>::infinity());
      const auto* list = lists_BK.const_data_ptr<int64_t>() + (t - block.first) * list_length;
      for (int64_t k = 0; k < list_length; ++k) check_index(list[k], t, begin[t], end[t]);
      if (selected_TK.defined()) {
        mark_selected(mask, block, list, list_length);
      } else {
        mark_range(mask, block, begin[t], end[t]);
      }
    }
  });
}

}  // namespace asterism::ops
