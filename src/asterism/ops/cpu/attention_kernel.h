#pragma once

#include <cstdint>
#include <span>

#include "asterism/ops/cpu/query_block.h"

namespace asterism::ops::cpu {

/// The arithmetic of ops/sparse_attention.h for fp32 and bf16 on raw pointers, for CPUs with AVX2 and FMA at least.
/// Sums are fp32. At the level AVX-512-BF16 bf16 inputs are multiplied as bf16, with the probabilities and their
/// gradients rounded to bf16 for the products; elsewhere bf16 inputs are widened.
/// Scratch memory belongs to the thread and is reused (scratch.h); its size depends on H and P only.

/// Whether this CPU has what the functions below need.
bool has_attention_kernels();

/// Rows of keys as the kernels read them, made by pack_keys: elements of bf16 if `packs_bf16`, otherwise fp32.
struct KeyTable {
  void* rows = nullptr;  // [num_rows + 1, stride]; the last row is zero
  int64_t num_rows = 0;
  int64_t stride = 0;
};
bool packs_bf16(bool bf16_inputs);
/// Elements of a packed row of `width` channels, padding included.
int64_t packed_stride(int64_t width, bool bf16_inputs);

struct PackKeysArgs {
  const void* source;  // rows of `width` channels, bf16 or fp32
  int64_t source_stride;
  int64_t width;
  bool bf16;
  KeyTable table;  // overwritten
};
/// Rows begin .. end - 1; row num_rows is the one of zeros.
void pack_keys(const PackKeysArgs& args, int64_t begin, int64_t end);

struct AttentionArgs {
  int64_t num_heads;  // H
  int64_t width;      // P
  int64_t window;     // raw keys that a query sees at most
  float scale;
  bool bf16;                               // type of q, o and their gradients: bf16, otherwise fp32
  const void* q;                           // [T, H, P]
  const float* sink;                       // [H]
  KeyTable raw, entries;                   // [T], [C]
  const int64_t* visible_begin = nullptr;  // [T], a query sees the entries visible_begin .. visible_end - 1
  const int64_t* visible_end = nullptr;    // [T]
  const int64_t* selected = nullptr;       // [T, list_length], entries that the query sees or -1; null: all it sees
  int64_t list_length = 0;
  const float* cos = nullptr;  // [T, num_pairs]: o is turned back by these angles, its last 2 num_pairs
  const float* sin = nullptr;  // channels; null: it is not
  int64_t num_pairs = 0;
};

struct AttentionResults {
  void* o;     // [T, H, P], overwritten
  float* lse;  // [T, H], overwritten
};

/// Queries per block that the kernels work best with. A function of sizes only.
int64_t attention_queries_per_block(int64_t num_heads, int64_t width);

/// Blocks are independent of each other: any division gives the same bits.
void attention_forward(const AttentionArgs& args, const AttentionResults& results, std::span<const QueryBlock> blocks);

/// Sums of rows first .. of a [C, stride] array with the stride of the key table; null: not wanted.
struct RowSums {
  float* rows = nullptr;
  int64_t first = 0;
};

struct AttentionGradArgs {
  const void* o;                // [T, H, P], of the forward
  const float* lse;             // [T, H]
  const void* grad_o;           // [T, H, P]
  void* grad_q = nullptr;       // [T, H, P], overwritten; null: not wanted
  RowSums raw, entries;         // added to; cover the keys of all blocks
  double* grad_sink = nullptr;  // [H], added to; null: not wanted
};

/// Blocks in order: sums over queries depend on the division into calls, and on nothing else.
void attention_backward(const AttentionArgs& args, const AttentionGradArgs& grad, std::span<const QueryBlock> blocks);

/// How much of the attention of a block's queries goes to entries, all heads together: the teacher of the indexer.
/// mass[i * stride + c] = log of the sum over heads of p(query block.first + i, entry), where c counts the visible
/// entries of the block, or with block.lists the places of args.selected; -inf where the query does not see the entry
/// or the place is unused. Without lists every visible entry gets its mass, selected or not.
void attention_log_mass(const AttentionArgs& args, const float* lse, const QueryBlock& block, float* mass,
                        int64_t stride);

}  // namespace asterism::ops::cpu
