#pragma once

#include "asterism/ops/cpu/attention_block.h"
#include "asterism/ops/cpu/isa/transpose.h"
#include "asterism/ops/cpu/isa/vector.h"

// Rows of q, o and grad_o: between the tensors and what the products read.

namespace asterism::ops::cpu::ASTERISM_ISA {

/// Turns the pairs (a, b) of the last 2 num_pairs channels of row t: to (a c - b s, a s + b c), or back.
inline void rotate(const AttentionArgs& args, int64_t token, bool back, float* row) {
  const float* cos = args.cos + token * args.num_pairs;
  const float* sin = args.sin + token * args.num_pairs;
  float* pairs = row + args.width - 2 * args.num_pairs;
  for (int64_t i = 0; i < args.num_pairs; ++i) {
    const float a = pairs[2 * i], b = pairs[2 * i + 1], c = cos[i], s = back ? -sin[i] : sin[i];
    pairs[2 * i] = a * c - b * s;
    pairs[2 * i + 1] = a * s + b * c;
  }
}

template <typename From, typename To>
inline void convert(const From* from, int64_t count, To* to) {
  for (int64_t i = 0; i < count; ++i) narrow(widen(from[i]), to[i]);
}

/// Reads row `row` of a [T H, P] tensor into floats; `buffer` is used where it is not fp32.
inline const float* read_row(const AttentionArgs& args, const void* tensor, int64_t row, float* buffer) {
  if (!args.bf16) return static_cast<const float*>(tensor) + row * args.width;
  convert(static_cast<const uint16_t*>(tensor) + row * args.width, args.width, buffer);
  return buffer;
}

inline void write_row(const AttentionArgs& args, const float* values, int64_t row, void* tensor) {
  if (args.bf16) {
    convert(values, args.width, static_cast<uint16_t*>(tensor) + row * args.width);
  } else {
    convert(values, args.width, static_cast<float*>(tensor) + row * args.width);
  }
}

inline void clear(Element* begin, int64_t count) {
  for (int64_t i = 0; i < count; ++i) begin[i] = Element{0};
}

/// Rows of a block as elements, padded with zeros to the right and below. `rotates`: turned forward on the way, as the
/// gradient of an output that is turned back.
inline void pack_block(const AttentionBlock& b, const void* tensor, bool rotates, void* rows, const void** row_list) {
  const AttentionArgs& args = *b.args;
  auto* elements = static_cast<Element*>(rows);
  float* buffer = b.sum;  // not in use yet
  const int64_t first_row = b.first_query * args.num_heads, padded_rows = round_up(b.num_columns + 1, kColumnGroup);
  for (int64_t m = 0; m < b.num_columns; ++m) {
    Element* row = elements + m * b.row_stride;
    const float* values = read_row(args, tensor, first_row + m, buffer);
    if (rotates) {
      if (values != buffer) convert(values, args.width, buffer);
      rotate(args, (first_row + m) / args.num_heads, /*back=*/false, buffer);
      values = buffer;
    }
    convert(values, args.width, row);
    clear(row + args.width, b.padded_width - args.width);
  }
  for (int64_t m = b.num_columns; m < padded_rows; ++m) clear(elements + m * b.row_stride, b.padded_width);
  for (int64_t m = 0; m <= b.num_columns; ++m) row_list[m] = elements + m * b.row_stride;
}

/// What pack_block made, transposed: [units of a row, columns], zero beyond the block's columns.
inline void transpose_block(const AttentionBlock& b, const void* rows, void* columns) {
  const auto* from = static_cast<const Unit*>(rows);
  auto* to = static_cast<Unit*>(columns);
  const int64_t depth = b.padded_width / kPerUnit, stride = b.row_stride / kPerUnit;
  const int64_t transposed = round_up(b.num_columns, 8);
  for (int64_t m = 0; m < transposed; m += 8) {
    for (int64_t k = 0; k < depth; k += 8) {
      transpose_square(from + m * stride + k, stride * sizeof(Unit), to + k * b.column_stride + m, b.column_stride);
    }
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t m = transposed; m < b.column_stride; ++m) to[k * b.column_stride + m] = Unit{0};
  }
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
