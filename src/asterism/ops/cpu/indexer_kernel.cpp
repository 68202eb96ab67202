#include "asterism/ops/cpu/indexer_kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

#include "asterism/ops/cpu/indexer_panel.h"
#include "asterism/ops/cpu/level.h"
#include "asterism/ops/cpu/scratch.h"

namespace asterism::ops::cpu {

namespace {

constexpr int64_t kWork = 6 * kIndexPanel;  // numbers of score_index_panel's scratch

ScoreIndexPanel panel_function() {
#if defined(__x86_64__)
  return level() >= Level::kAvx512 ? isa_avx512::score_index_panel : isa_avx2::score_index_panel;
#else
  return nullptr;
#endif
}

// The panels that a block's queries see, and a row of scores for each query over all of them.
struct PanelRange {
  int64_t first, last;

  explicit PanelRange(const QueryBlock& block)
      : first(block.entry_first / kIndexPanel), last((block.entry_last + kIndexPanel - 1) / kIndexPanel) {}
  int64_t row_length() const { return (last - first) * kIndexPanel; }
};

// Rows of scores, [queries, row_length]; panels that a query does not see at all are left as they are. A panel stays in
// the cache for all queries.
void score_block(const IndexArgs& args, const QueryBlock& block, float* rows, float* work) {
  const ScoreIndexPanel score_panel = panel_function();
  const PanelRange range(block);
  for (int64_t panel = range.first; panel < range.last; ++panel) {
    for (int64_t t = block.first; t < block.last; ++t) {
      if (panel * kIndexPanel >= args.visible_end[t]) continue;
      float* row = rows + (t - block.first) * range.row_length();
      score_panel(args, t, args.panels + panel * kIndexPanel * args.width, work,
                  row + (panel - range.first) * kIndexPanel);
    }
  }
}

// Unsigned numbers in the order of floats; both zeros are equal.
uint32_t order_of(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0F);
  return bits ^ (bits >> 31 != 0 ? 0xFFFFFFFFU : 0x80000000U);
}

struct Threshold {
  uint32_t value;  // the k-th largest
  int64_t ties;    // how many of those equal to it are among the k largest
};

// Radix select: digit by digit from the top, keeping the candidates that share the k-th largest's digits so far.
Threshold kth_largest(const uint32_t* numbers, int64_t n, int64_t k, uint32_t* candidates) {
  constexpr std::array<int, 3> kShifts{21, 10, 0};
  constexpr uint32_t kDigits = 2048;
  std::array<uint32_t, kDigits> count;
  const uint32_t* from = numbers;
  for (const int shift : kShifts) {
    const uint32_t mask = shift == 0 ? 1023 : kDigits - 1;
    count.fill(0);
    for (int64_t i = 0; i < n; ++i) ++count[from[i] >> shift & mask];
    uint32_t digit = mask;
    for (; count[digit] < k; --digit) k -= count[digit];
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      candidates[kept] = from[i];  // without a branch, which nobody could predict
      kept += static_cast<int64_t>((from[i] >> shift & mask) == digit);
    }
    from = candidates;
    n = kept;
  }
  return {.value = from[0], .ties = k};
}

// Ascending indices of the k largest of n > k scores, or false where one is NaN. `numbers` has room for 2 n.
bool select_largest(const float* score, int64_t n, int64_t k, uint32_t* numbers, int64_t* out) {
  uint32_t not_numbers = 0;
  for (int64_t i = 0; i < n; ++i) {
    numbers[i] = order_of(score[i]);
    not_numbers |= static_cast<uint32_t>(score[i] != score[i]);
  }
  if (not_numbers != 0 || k == 0) return not_numbers == 0;
  auto [value, ties] = kth_largest(numbers, n, k, numbers + n);
  uint32_t* chosen = numbers + n;
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const bool tie = numbers[i] == value;
    chosen[count] = static_cast<uint32_t>(i);
    count += static_cast<int64_t>((numbers[i] > value) | (tie & (ties > 0)));
    ties -= static_cast<int64_t>(tie);
  }
  std::copy_n(chosen, k, out);
  return true;
}

}  // namespace

bool has_indexer_kernels() {
  return level() >= Level::kAvx2;
}

int64_t num_index_panels(int64_t num_keys) {
  return (num_keys + kIndexPanel - 1) / kIndexPanel;
}

int64_t index_panels_size(int64_t num_keys, int64_t width) {
  return num_index_panels(num_keys) * kIndexPanel * width;
}

void pack_index_keys(const IndexArgs& args, const float* keys, int64_t begin, int64_t end) {
  for (int64_t panel = begin; panel < end; ++panel) {
    float* to = args.panels + panel * kIndexPanel * args.width;
    for (int64_t j = 0; j < kIndexPanel; ++j) {
      const int64_t key = panel * kIndexPanel + j;
      for (int64_t i = 0; i < args.width; ++i) {
        to[i * kIndexPanel + j] = key < args.num_keys ? keys[key * args.width + i] : 0.0F;
      }
    }
  }
}

void index_scores(const IndexArgs& args, const QueryBlock& block, float* score, int64_t stride) {
  const PanelRange range(block);
  const int64_t row_length = range.row_length(), offset = range.first * kIndexPanel;
  auto* work = static_cast<float*>(thread_scratch((kWork + block.num_queries() * row_length) * sizeof(float)));
  float* rows = work + kWork;
  score_block(args, block, rows, work);
  for (int64_t t = block.first; t < block.last; ++t) {
    float* out = score + (t - block.first) * stride;
    std::fill(out, out + block.num_visible_entries(), -std::numeric_limits<float>::infinity());
    const float* row = rows + (t - block.first) * row_length - offset;
    std::copy(row + args.visible_begin[t], row + args.visible_end[t], out + args.visible_begin[t] - block.entry_first);
  }
}

int64_t index_topk(const IndexArgs& args, const QueryBlock& block, int64_t k, int64_t* selected) {
  const PanelRange range(block);
  const int64_t row_length = range.row_length(), offset = range.first * kIndexPanel;
  const bool choice = block.num_visible_entries() > k;  // the last query of a block sees the most
  const int64_t numbers_size = choice ? 2 * row_length : 0, rows_size = choice ? block.num_queries() * row_length : 0;
  auto* work = static_cast<float*>(thread_scratch((kWork + rows_size + numbers_size) * sizeof(float)));
  float* rows = work + kWork;
  auto* numbers = reinterpret_cast<uint32_t*>(rows + rows_size);
  if (choice) score_block(args, block, rows, work);
  for (int64_t t = block.first; t < block.last; ++t) {
    const int64_t begin = args.visible_begin[t], count = args.visible_end[t] - begin;
    int64_t* out = selected + t * k;
    std::fill(out, out + k, -1);
    if (count <= k) {
      std::iota(out, out + count, begin);
      continue;
    }
    const float* score = rows + (t - block.first) * row_length - offset + begin;
    if (!select_largest(score, count, k, numbers, out)) return t;
    for (int64_t i = 0; i < k; ++i) out[i] += begin;
  }
  return -1;
}

}  // namespace asterism::ops::cpu
