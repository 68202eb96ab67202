#include "asterism/ops/cpu/isa/attention_rows.h"
#include "asterism/ops/cpu/isa/attention_tile.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

// Online softmax of 16 columns over a tile's keys: score becomes exp(score - largest so far).
void exponentiate(const AttentionBlock& b, Stretch keys, int64_t group) {
  const Vec scale = fill(b.args->scale), lowest = fill(-3.402823466e38F);
  for (int64_t m = group; m < group + kColumnGroup; m += kLanes) {
    float* score = b.score + m;
    const Vec before = load(b.tile_largest + m);
    Vec top = before;
    for (int64_t j = keys.begin; j < keys.end; ++j)
      top = larger(multiply(load(score + j * b.score_stride), scale), top);
    top = larger(lowest, top);  // subtracting it must leave -inf and not NaN where a column has seen nothing yet
    Vec sum = fill(0.0F);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const Vec p = exponential(subtract(multiply(load(score + j * b.score_stride), scale), top));
      store(score + j * b.score_stride, p);
      sum = add(sum, p);
    }
    const Vec factor = exponential(subtract(before, top));
    store(b.tile_largest + m, top);
    store(b.tile_factor + m, factor);
    store(b.tile_denominator + m, multiply_add(load(b.tile_denominator + m), factor, sum));
  }
}

#ifdef __AVX512BF16__
// The probabilities of 16 columns as pairs of keys; a key outside the stretch has none.
const Unit* pair_weights(const AttentionBlock& b, Stretch keys, int64_t group) {
  auto* units = static_cast<Unit*>(b.weight_units);
  for (int64_t j = keys.begin / 2 * 2; j < keys.end; j += 2) {
    const float* score = b.score + j * b.score_stride + group;
    const Vec first = j >= keys.begin ? load(score) : fill(0.0F);
    const Vec second = j + 1 < keys.end ? load(score + b.score_stride) : fill(0.0F);
    store_pairs(first, second, units + j / 2 * b.score_stride + group);
  }
  return units;
}
#else
const Unit* pair_weights(const AttentionBlock& b, Stretch, int64_t) {
  return b.score;
}
#endif

}  // namespace

void open_forward(const AttentionBlock& b) {
  pack_block(b, b.args->q, /*rotates=*/false, b.q_rows, b.q_row_list);
  transpose_block(b, b.q_rows, b.q_columns);
  for (int64_t m = 0; m < b.num_columns; ++m) {
    float* sum = b.sum + m * b.row_stride;
    for (int64_t i = 0; i < b.padded_width; ++i) sum[i] = 0.0F;
    b.largest[m] = b.args->sink[m % b.args->num_heads];
    b.denominator[m] = 1.0F;
  }
}

void forward_tile(const AttentionBlock& b, const KeyTile& t) {
  const TileShape shape(b, t);
  const int64_t first = t.first_query * shape.heads(), count = shape.num_columns();
  score_keys(b, t, b.q_columns, b.score);
  hide_unseen(b, t, b.score);
  for (int64_t m = 0; m < shape.padded_columns(); ++m) {
    b.tile_largest[m] = m < count ? b.largest[first + m] : 0.0F;
    b.tile_denominator[m] = m < count ? b.denominator[first + m] : 0.0F;
  }
  const Unit* weight = nullptr;
  for (int64_t group = 0; group < count; group += kColumnGroup) {
    const Stretch keys = shape.keys(group, group + kColumnGroup);
    exponentiate(b, keys, group);
    weight = pair_weights(b, keys, group);
  }
  for (int64_t m = 0; m < count; ++m) {
    b.largest[first + m] = b.tile_largest[m];
    b.denominator[first + m] = b.tile_denominator[m];
  }
  add_weighted_keys<Into::kScaleAdd>(b, t, weight, b.tile_factor);
}

void close_forward(const AttentionBlock& b) {
  const AttentionArgs& args = *b.args;
  for (int64_t m = 0; m < b.num_columns; ++m) {
    float* o = b.sum + m * b.row_stride;
    const float factor = 1.0F / b.denominator[m];
    for (int64_t i = 0; i < args.width; ++i) o[i] *= factor;
    const int64_t row = b.first_query * args.num_heads + m;
    if (args.cos != nullptr) rotate(args, row / args.num_heads, /*back=*/true, o);
    write_row(args, o, row, b.results.o);
  }
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
