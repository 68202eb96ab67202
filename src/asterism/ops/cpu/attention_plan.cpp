#include "asterism/ops/cpu/attention_plan.h"

#include <algorithm>
#include <numeric>

namespace asterism::ops::cpu {

namespace {

// Calls body(begin, end) for the fewest stretches of at most `limit` (even), about equally long and even but for the
// last.
template <typename Body>
void cut_evenly(int64_t count, int64_t limit, const Body& body) {
  const int64_t stretches = std::max<int64_t>((count + limit - 1) / limit, 1);
  const int64_t length = (count + 2 * stretches - 1) / (2 * stretches) * 2;
  for (int64_t begin = 0; begin < count; begin += length) body(begin, std::min(begin + length, count));
}

// A list's products are narrow: per pair they take this much longer than those of a block of queries. In tenths.
int64_t list_cost(int64_t num_heads) {
  if (num_heads <= 8) return 22;
  return num_heads <= 16 ? 14 : 11;
}

}  // namespace

AttentionPlan::AttentionPlan(const AttentionArgs& args, const AttentionGradArgs* grad, int64_t max_keys,
                             int64_t element_size)
    : args_(args), grad_(grad), max_keys_(max_keys), element_size_(element_size) {}

void AttentionPlan::for_each_tile(const QueryBlock& block, const std::function<void(const KeyTile&)>& run) {
  raw_tiles(block, run);
  if (block.num_visible_entries() == 0) return;
  if (args_.selected == nullptr) return visible_tiles(block, run);
  read_lists(block);
  unite_lists(block);
  const auto pairs = static_cast<int64_t>(lists_.size()), union_size = static_cast<int64_t>(keys_.size());
  if (union_size * block.num_queries() * 10 <= pairs * list_cost(args_.num_heads)) {
    union_tiles(block, run);
  } else {
    list_tiles(block, run);
  }
}

KeyTile AttentionPlan::open_tile(const Source& source, int64_t begin, int64_t end) {
  const auto* table = static_cast<const std::byte*>(source.table->rows);
  const auto row = [&](int64_t key) { return table + key * source.table->stride * element_size_; };
  const bool wants_grad = source.sums != nullptr && source.sums->rows != nullptr;
  rows_.clear();
  grad_rows_.clear();
  for (int64_t i = begin; i < end; ++i) {
    rows_.push_back(row(keys_[i]));
    if (wants_grad) grad_rows_.push_back(source.sums->rows + (keys_[i] - source.sums->first) * source.table->stride);
  }
  rows_.push_back(row(source.table->num_rows));  // zeros
  return {.num_keys = end - begin,
          .rows = rows_.data(),
          .grad_rows = wants_grad ? grad_rows_.data() : nullptr,
          .first_query = 0,
          .num_queries = 0,
          .query_begin = nullptr,
          .query_end = nullptr,
          .key_begin = nullptr,
          .key_end = nullptr,
          .selected = nullptr};
}

KeyTile AttentionPlan::with_ranges(KeyTile tile) const {
  tile.query_begin = query_begin_.data();
  tile.query_end = query_end_.data();
  tile.key_begin = key_begin_.data();
  tile.key_end = key_end_.data();
  return tile;
}

void AttentionPlan::raw_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run) {
  keys_.resize(block.num_raw_keys());
  std::iota(keys_.begin(), keys_.end(), block.key_first);
  const int64_t queries = block.num_queries();
  cut_evenly(block.num_raw_keys(), max_keys_, [&](int64_t begin, int64_t end) {
    KeyTile tile = open_tile(raw_source(), begin, end);
    const auto clamp = [](int64_t x, int64_t last) { return static_cast<int32_t>(std::clamp<int64_t>(x, 0, last)); };
    query_begin_.clear(), query_end_.clear(), key_begin_.clear(), key_end_.clear();
    for (int64_t i = begin; i < end; ++i) {
      query_begin_.push_back(clamp(keys_[i] - block.first, queries));
      query_end_.push_back(clamp(keys_[i] + args_.window - block.first, queries));
    }
    for (int64_t t = block.first; t < block.last; ++t) {
      key_begin_.push_back(clamp(t - args_.window + 1 - keys_[begin], end - begin));
      key_end_.push_back(clamp(t + 1 - keys_[begin], end - begin));
    }
    tile.num_queries = queries;
    run(with_ranges(tile));
  });
}

void AttentionPlan::entry_tiles(const QueryBlock& block, bool selected,
                                const std::function<void(const KeyTile&)>& run) {
  const int64_t queries = block.num_queries();
  const int64_t* visible_end = args_.visible_end + block.first;
  cut_evenly(static_cast<int64_t>(keys_.size()), max_keys_, [&](int64_t begin, int64_t end) {
    KeyTile tile = open_tile(entry_source(), begin, end);
    query_begin_.clear(), key_end_.clear();
    query_end_.assign(end - begin, static_cast<int32_t>(queries));
    key_begin_.assign(queries, 0);
    int32_t query = 0, key = 0;
    for (int64_t i = begin; i < end; ++i) {
      while (query < queries && visible_end[query] <= keys_[i]) ++query;
      query_begin_.push_back(query);
    }
    for (int64_t q = 0; q < queries; ++q) {
      while (key < end - begin && keys_[begin + key] < visible_end[q]) ++key;
      key_end_.push_back(key);
    }
    tile.num_queries = queries;
    if (selected) tile.selected = selected_.data() + begin * queries;
    run(with_ranges(tile));
  });
}

void AttentionPlan::visible_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run) {
  keys_.resize(block.num_visible_entries());
  std::iota(keys_.begin(), keys_.end(), block.entry_first);
  entry_tiles(block, /*selected=*/false, run);
}

void AttentionPlan::read_lists(const QueryBlock& block) {
  lists_.clear();
  list_begin_.assign(1, 0);
  for (int64_t t = block.first; t < block.last; ++t) {
    const int64_t* list = args_.selected + t * args_.list_length;
    const auto begin = static_cast<int64_t>(lists_.size());
    std::copy_if(list, list + args_.list_length, std::back_inserter(lists_), [](int64_t entry) { return entry >= 0; });
    const auto own = lists_.begin() + begin;
    if (std::adjacent_find(own, lists_.end(), std::greater_equal<>()) != lists_.end()) {
      std::sort(own, lists_.end());
      lists_.erase(std::unique(own, lists_.end()), lists_.end());
    }
    list_begin_.push_back(static_cast<int64_t>(lists_.size()));
  }
}

void AttentionPlan::unite_lists(const QueryBlock& block) {
  place_.assign(block.num_visible_entries(), -1);
  for (const int64_t entry : lists_) place_[entry - block.entry_first] = 0;
  keys_.clear();
  for (int64_t i = 0; i < block.num_visible_entries(); ++i) {
    if (place_[i] < 0) continue;
    place_[i] = static_cast<int32_t>(keys_.size());
    keys_.push_back(block.entry_first + i);
  }
}

void AttentionPlan::union_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run) {
  const int64_t queries = block.num_queries();
  selected_.assign(keys_.size() * queries, 0);
  for (int64_t q = 0; q < queries; ++q) {
    for (int64_t i = list_begin_[q]; i < list_begin_[q + 1]; ++i) {
      selected_[place_[lists_[i] - block.entry_first] * queries + q] = 1;
    }
  }
  entry_tiles(block, /*selected=*/true, run);
}

void AttentionPlan::listed_tiles(const QueryBlock& block, const RunListed& run) {
  std::vector<int64_t> places;
  for (int64_t q = 0; q < block.num_queries(); ++q) {
    const int64_t* list = args_.selected + (block.first + q) * args_.list_length;
    keys_.clear();
    places.clear();
    for (int64_t k = 0; k < args_.list_length; ++k) {
      if (list[k] < 0) continue;
      keys_.push_back(list[k]);
      places.push_back(k);
    }
    cut_evenly(static_cast<int64_t>(keys_.size()), max_keys_, [&](int64_t begin, int64_t end) {
      KeyTile tile = open_tile(entry_source(), begin, end);
      tile.first_query = q;
      tile.num_queries = 1;
      run(tile, places.data() + begin);
    });
  }
}

void AttentionPlan::list_tiles(const QueryBlock& block, const std::function<void(const KeyTile&)>& run) {
  for (int64_t q = 0; q < block.num_queries(); ++q) {
    keys_.assign(lists_.begin() + list_begin_[q], lists_.begin() + list_begin_[q + 1]);
    cut_evenly(static_cast<int64_t>(keys_.size()), max_keys_, [&](int64_t begin, int64_t end) {
      KeyTile tile = open_tile(entry_source(), begin, end);
      tile.first_query = q;
      tile.num_queries = 1;
      run(tile);
    });
  }
}

}  // namespace asterism::ops::cpu
