#pragma once

#include <cstdint>

#include "asterism/ops/cpu/attention_kernel.h"

namespace asterism::ops::cpu {

/// What the driver (attention_kernel.cpp) and the code for one instruction set (isa/attention_*.cpp) share. Plain data:
/// nothing here may become a function that both compile.
///
/// Scores are kept transposed, keys x columns, where column q H + h is head h of the block's query q. Softmax then goes
/// along the rows of a vector of columns, and no product has to transpose or copy keys.

/// Some keys, and the consecutive queries of a block that read them.
struct KeyTile {
  int64_t num_keys;
  const void* const* rows;           // [num_keys + 1], the last a row of zeros
  float* const* grad_rows;           // [num_keys]; null: not wanted
  int64_t first_query, num_queries;  // of the block
  // Who sees what, both ascending: key j is seen by the queries query_begin[j] .. query_end[j] - 1 (counted from
  // first_query), query q sees the keys key_begin[q] .. key_end[q] - 1. Null: everybody sees everything.
  const int32_t *query_begin, *query_end, *key_begin, *key_end;
  const uint8_t* selected;  // [num_keys, num_queries]: of these keys only the ones that are 1; null: all
};

/// Widest group of columns that have one range of keys.
constexpr int64_t kColumnGroup = 16;

/// A block of M = queries x H columns and its scratch memory. `Element` and `Unit` are isa/vector.h's.
struct AttentionBlock {
  const AttentionArgs* args;
  const AttentionGradArgs* grad;  // null in the forward
  AttentionResults results;       // in the forward
  int64_t first_query, num_queries;
  int64_t num_columns;    // M
  int64_t padded_width;   // P, padding included
  int64_t row_stride;     // elements, of rows of q, grad_o and keys
  int64_t column_stride;  // units, of transposed q and grad_o
  int64_t score_stride;   // numbers, of score, grad_score, and units or elements of what is made of them
  void* q_rows;           // Element [M, row_stride], then rows of zeros up to a multiple of 16
  void* grad_o_rows;
  const void** q_row_list;  // [M + 1]
  const void** grad_o_row_list;
  void* q_columns;  // Unit [P, column_stride]
  void* grad_o_columns;
  float* sum;          // [M, row_stride]: o, or in the backward grad_q
  float* largest;      // [M]: running maximum; in the backward lse
  float* denominator;  // [M]: sum of exp(score - largest); in the backward <o, grad_o>
  float *tile_largest, *tile_denominator, *tile_factor;  // the same for the columns of a tile
  float* score;                                          // [keys, score_stride]; becomes P
  float* grad_score;                                     // becomes scale * dz
  void* weight_units;  // where a unit is a pair: two keys' P (in the backward dz) of a column
  void* p_elements;    // where an element is not a float: P and dz for the products that sum over columns
  void* grad_z_elements;
};

/// The steps for one instruction set.
struct AttentionSteps {
  int64_t element_size;
  void (*pack_keys)(const PackKeysArgs& args, int64_t begin, int64_t end);
  void (*open_forward)(const AttentionBlock& block);
  void (*forward_tile)(const AttentionBlock& block, const KeyTile& tile);
  void (*close_forward)(const AttentionBlock& block);
  void (*open_backward)(const AttentionBlock& block);
  void (*backward_tile)(const AttentionBlock& block, const KeyTile& tile);
  void (*close_backward)(const AttentionBlock& block);
  /// After open_forward, with lse in block.largest. For query q and key j of the tile that it sees: the largest
  /// score - lse of the heads in top[q * stride + j], and the sum of exp(score - lse - top) in sum[q * stride + j].
  void (*mass_tile)(const AttentionBlock& block, const KeyTile& tile, float* top, float* sum, int64_t stride);
};

#if defined(__x86_64__)
namespace isa_avx2 {
AttentionSteps attention_steps();
}
namespace isa_avx512 {
AttentionSteps attention_steps();
}
namespace isa_avx512_bf16 {
AttentionSteps attention_steps();
}
#endif

}  // namespace asterism::ops::cpu
