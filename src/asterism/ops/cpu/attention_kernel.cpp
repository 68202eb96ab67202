#include "asterism/ops/cpu/attention_kernel.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "asterism/ops/cpu/attention_block.h"
#include "asterism/ops/cpu/attention_plan.h"
#include "asterism/ops/cpu/level.h"
#include "asterism/ops/cpu/scratch.h"

namespace asterism::ops::cpu {

namespace {

constexpr int64_t kWidthUnit = 32;          // channels of a row are padded to a multiple of this
constexpr int64_t kBlockNumbers = 1 << 15;  // in a matrix of a block: several of them stay in the second cache
constexpr int64_t kCacheLine = 64;

int64_t round_to(int64_t x, int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

AttentionSteps steps_of(bool bf16_inputs) {
#if defined(__x86_64__)
  switch (level()) {
    case Level::kAvx512Bf16:
      return bf16_inputs ? isa_avx512_bf16::attention_steps() : isa_avx512::attention_steps();
    case Level::kAvx512:
      return isa_avx512::attention_steps();
    default:
      return isa_avx2::attention_steps();
  }
#else
  return {};
#endif
}

// A row never fills whole pages or halves of them: rows at such distances would share a few sets of the first cache.
int64_t stride_of(int64_t width, int64_t element_size) {
  const int64_t line = kCacheLine / element_size;
  return (round_to(width, kWidthUnit) / line | 1) * line;
}

int64_t most_queries(std::span<const QueryBlock> blocks) {
  int64_t most = 1;
  for (const QueryBlock& block : blocks) most = std::max(most, block.num_queries());
  return most;
}

// Hands out pieces of the thread's scratch memory; without memory it only counts.
class Pieces {
 public:
  explicit Pieces(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* take(int64_t count) {
    std::byte* piece = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += round_to(count * static_cast<int64_t>(sizeof(T)), kCacheLine);
    return reinterpret_cast<T*>(piece);
  }
  void* take_bytes(int64_t count) { return take<std::byte>(count); }
  int64_t used() const { return used_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
};

struct Sizes {
  int64_t columns, keys, element_size;
};

int64_t lay_out(AttentionBlock& b, const Sizes& sizes, std::byte* memory) {
  Pieces pieces(memory);
  const bool backward = b.grad != nullptr, pairs = sizes.element_size == 2;
  const int64_t columns = round_to(sizes.columns, kColumnGroup) + kColumnGroup;
  const int64_t row_bytes = b.row_stride * sizes.element_size, column_bytes = b.column_stride * 4;
  const int64_t units = b.padded_width * sizes.element_size / 4;
  b.q_rows = pieces.take_bytes(columns * row_bytes);
  b.q_columns = pieces.take_bytes(units * column_bytes);
  b.q_row_list = pieces.take<const void*>(columns);
  if (backward) {
    b.grad_o_rows = pieces.take_bytes(columns * row_bytes);
    b.grad_o_columns = pieces.take_bytes(units * column_bytes);
    b.grad_o_row_list = pieces.take<const void*>(columns);
    b.grad_score = pieces.take<float>(sizes.keys * b.score_stride);
  }
  b.sum = pieces.take<float>((sizes.columns + 1) * b.row_stride);
  for (float** state : {&b.largest, &b.denominator, &b.tile_largest, &b.tile_denominator, &b.tile_factor}) {
    *state = pieces.take<float>(columns);
  }
  b.score = pieces.take<float>(sizes.keys * b.score_stride);
  if (pairs) b.weight_units = pieces.take<uint32_t>(sizes.keys / 2 * b.score_stride);
  if (pairs && backward) {
    b.p_elements = pieces.take<uint16_t>(sizes.keys * b.score_stride);
    b.grad_z_elements = pieces.take<uint16_t>(sizes.keys * b.score_stride);
  }
  return pieces.used();
}

// Scratch for every block of a call, and how many keys go into a tile.
struct Workplace {
  AttentionSteps steps;
  AttentionBlock block;
  int64_t max_keys;
};

Workplace open_workplace(const AttentionArgs& args, const AttentionGradArgs* grad, std::span<const QueryBlock> blocks) {
  Workplace work{.steps = steps_of(args.bf16), .block = {}, .max_keys = 0};
  const int64_t columns = most_queries(blocks) * args.num_heads, size = work.steps.element_size;
  work.max_keys = std::clamp<int64_t>(kBlockNumbers / columns / 2 * 2, 64, 512);
  AttentionBlock& b = work.block;
  b.args = &args;
  b.grad = grad;
  b.padded_width = round_to(args.width, kWidthUnit);
  b.row_stride = stride_of(args.width, size);
  b.column_stride = stride_of(round_to(columns, kColumnGroup) + kColumnGroup, 4);
  b.score_stride = b.column_stride;
  const Sizes sizes{.columns = columns, .keys = work.max_keys, .element_size = size};
  const int64_t bytes = lay_out(b, sizes, nullptr);
  lay_out(b, sizes, static_cast<std::byte*>(thread_scratch(bytes)));
  return work;
}

void open_block(AttentionBlock& b, const QueryBlock& queries) {
  b.first_query = queries.first;
  b.num_queries = queries.num_queries();
  b.num_columns = b.num_queries * b.args->num_heads;
}

void add_sink_gradient(const AttentionBlock& b) {
  if (b.grad->grad_sink == nullptr) return;
  for (int64_t m = 0; m < b.num_columns; ++m) {
    const int64_t head = m % b.args->num_heads;
    b.grad->grad_sink[head] -= static_cast<double>(std::exp(b.args->sink[head] - b.largest[m]) * b.denominator[m]);
  }
}

// Parts of a block that are as large as scratch memory is made for.
std::vector<QueryBlock> parts_of(const AttentionArgs& args, const QueryBlock& block) {
  const int64_t most = attention_queries_per_block(args.num_heads, args.width);
  std::vector<QueryBlock> parts;
  for (int64_t first = block.first; first < block.last; first += most) {
    QueryBlock part = block;
    part.first = first;
    part.last = std::min(first + most, block.last);
    part.entry_last = args.visible_end[part.last - 1];
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

bool has_attention_kernels() {
  return level() >= Level::kAvx2;
}

bool packs_bf16(bool bf16_inputs) {
  return steps_of(bf16_inputs).element_size == 2;
}

int64_t packed_stride(int64_t width, bool bf16_inputs) {
  return stride_of(width, steps_of(bf16_inputs).element_size);
}

void pack_keys(const PackKeysArgs& args, int64_t begin, int64_t end) {
  steps_of(args.bf16).pack_keys(args, begin, end);
}

int64_t attention_queries_per_block(int64_t num_heads, int64_t width) {
  return std::clamp<int64_t>(kBlockNumbers / (num_heads * round_to(width, kWidthUnit)), 1, 64);
}

void attention_forward(const AttentionArgs& args, const AttentionResults& results, std::span<const QueryBlock> blocks) {
  Workplace work = open_workplace(args, nullptr, blocks);
  AttentionBlock& b = work.block;
  b.results = results;
  AttentionPlan plan(args, nullptr, work.max_keys, work.steps.element_size);
  for (const QueryBlock& queries : blocks) {
    open_block(b, queries);
    work.steps.open_forward(b);
    plan.for_each_tile(queries, [&](const KeyTile& tile) { work.steps.forward_tile(b, tile); });
    work.steps.close_forward(b);
    float* lse = results.lse + b.first_query * args.num_heads;
    for (int64_t m = 0; m < b.num_columns; ++m) lse[m] = b.largest[m] + std::log(b.denominator[m]);
  }
}

void attention_backward(const AttentionArgs& args, const AttentionGradArgs& grad, std::span<const QueryBlock> blocks) {
  Workplace work = open_workplace(args, &grad, blocks);
  AttentionBlock& b = work.block;
  AttentionPlan plan(args, &grad, work.max_keys, work.steps.element_size);
  const bool only_sink = grad.grad_q == nullptr && grad.raw.rows == nullptr && grad.entries.rows == nullptr;
  for (const QueryBlock& queries : blocks) {
    open_block(b, queries);
    work.steps.open_backward(b);
    add_sink_gradient(b);
    if (only_sink) continue;
    plan.for_each_tile(queries, [&](const KeyTile& tile) { work.steps.backward_tile(b, tile); });
    work.steps.close_backward(b);
  }
}

void attention_log_mass(const AttentionArgs& args, const float* lse, const QueryBlock& block, float* mass,
                        int64_t stride) {
  const std::vector<QueryBlock> parts = parts_of(args, block);
  Workplace work = open_workplace(args, nullptr, parts);
  AttentionBlock& b = work.block;
  AttentionPlan plan(args, nullptr, work.max_keys, work.steps.element_size);
  std::vector<float> top(b.score_stride * work.max_keys), sum(top.size());
  for (const QueryBlock& part : parts) {
    open_block(b, part);
    work.steps.open_forward(b);
    std::copy_n(lse + b.first_query * args.num_heads, b.num_columns, b.largest);
    float* rows = mass + (part.first - block.first) * stride;
    const int64_t length = block.lists ? args.list_length : block.num_visible_entries();
    for (int64_t q = 0; q < part.num_queries(); ++q) {
      std::fill_n(rows + q * stride, length, -std::numeric_limits<float>::infinity());
    }
    const auto write = [&](const KeyTile& tile, int64_t q, int64_t j, int64_t column) {
      const int64_t i = q * work.max_keys + j;
      rows[(tile.first_query + q) * stride + column] = top[i] + std::log(sum[i]);
    };
    if (block.lists) {
      plan.listed_tiles(part, [&](const KeyTile& tile, const int64_t* place) {
        work.steps.mass_tile(b, tile, top.data(), sum.data(), work.max_keys);
        for (int64_t j = 0; j < tile.num_keys; ++j) write(tile, 0, j, place[j]);
      });
      continue;
    }
    int64_t begin = 0;
    plan.visible_tiles(part, [&](const KeyTile& tile) {
      work.steps.mass_tile(b, tile, top.data(), sum.data(), work.max_keys);
      for (int64_t q = 0; q < tile.num_queries; ++q) {
        for (int64_t j = tile.key_begin[q]; j < tile.key_end[q]; ++j) write(tile, q, j, begin + j);
      }
      begin += tile.num_keys;
    });
  }
}

}  // namespace asterism::ops::cpu
