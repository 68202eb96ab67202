#include "asterism/ops/cpu/isa/attention_rows.h"
#include "asterism/ops/cpu/isa/attention_tile.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

// 16 columns: score becomes P, grad_score becomes scale * P (grad_score - <o, grad_o>).
struct SoftmaxGradient {
  Vec scale, lse, delta;

  void operator()(const float* score, const float* grad_score, Vec& p, Vec& grad_z) const {
    p = exponential(subtract(multiply(load(score), scale), lse));
    grad_z = multiply(multiply(p, subtract(load(grad_score), delta)), scale);
  }
};

SoftmaxGradient softmax_gradient(const AttentionBlock& b, int64_t m) {
  return {fill(b.args->scale), load(b.tile_largest + m), load(b.tile_denominator + m)};
}

#ifdef __AVX512BF16__
void differentiate(const AttentionBlock& b, Stretch keys, int64_t group) {
  const SoftmaxGradient gradient = softmax_gradient(b, group);
  auto* units = static_cast<Unit*>(b.weight_units) + group;
  auto* p_elements = static_cast<Element*>(b.p_elements) + group;
  auto* grad_z_elements = static_cast<Element*>(b.grad_z_elements) + group;
  for (int64_t pair = keys.begin / 2 * 2; pair < keys.end; pair += 2) {
    Vec grad_z[2] = {fill(0.0F), fill(0.0F)};
    for (int64_t j = largest(pair, keys.begin); j < smallest(pair + 2, keys.end); ++j) {
      const int64_t offset = j * b.score_stride;
      Vec p;
      gradient(b.score + offset + group, b.grad_score + offset + group, p, grad_z[j - pair]);
      store_elements(p, p_elements + offset);
      store_elements(grad_z[j - pair], grad_z_elements + offset);
    }
    store_pairs(grad_z[0], grad_z[1], units + pair / 2 * b.score_stride);
  }
}
#else
void differentiate(const AttentionBlock& b, Stretch keys, int64_t group) {
  for (int64_t m = group; m < group + kColumnGroup; m += kLanes) {
    const SoftmaxGradient gradient = softmax_gradient(b, m);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      float* score = b.score + j * b.score_stride + m;
      float* grad_score = b.grad_score + j * b.score_stride + m;
      Vec p, grad_z;
      gradient(score, grad_score, p, grad_z);
      store(score, p);
      store(grad_score, grad_z);
    }
  }
}
#endif

// Zeros beyond what the groups of columns have written of each key, as far as a tile of rows reads.
void clear_unread(const AttentionBlock& b, const TileShape& shape, int64_t begin, int64_t end, Element* weight) {
  const Stretch tile = shape.groups(begin, end);
  for (int64_t j = begin; j < end; ++j) {
    const Stretch own = shape.groups(j, j + 1);
    Element* row = weight + j * b.score_stride;
    for (int64_t m = tile.begin; m < smallest(own.begin, tile.end); ++m) row[m] = Element{0};
    for (int64_t m = largest(own.end, tile.begin); m < tile.end; ++m) row[m] = Element{0};
  }
}

// Key rows += the sum over columns of grad_z * q + P * grad_o.
void add_key_gradients(const AttentionBlock& b, const KeyTile& t, Element* p_weight, Element* grad_z_weight) {
  const TileShape shape(b, t);
  const int64_t first = t.first_query * shape.heads();
  for_each_row_tile(t.num_keys, [&](int64_t begin, int64_t end) {
    clear_unread(b, shape, begin, end, p_weight);
    clear_unread(b, shape, begin, end, grad_z_weight);
  });
  const auto add = [&](const Element* weight, const void* const* x_row_list, int64_t panel, int64_t begin,
                       int64_t end) {
    const Stretch columns = shape.columns(begin, end);
    ProductRows p;
    p.step = 1, p.first = columns.begin / kPerUnit, p.last = (columns.end + kPerUnit - 1) / kPerUnit;
    for (int64_t j = begin; j < end; ++j) {
      p.a[j - begin] = reinterpret_cast<const Unit*>(weight + j * b.score_stride);
      p.c[j - begin] = t.grad_rows[j];
    }
    const ElementRows rows{reinterpret_cast<const Element* const*>(x_row_list + first)};
    multiply_columns<Into::kAdd>(p, end - begin, rows, panel, smallest(panel + kPanel, b.padded_width));
  };
  for (int64_t panel = 0; panel < b.padded_width; panel += kPanel) {
    for_each_row_tile(t.num_keys, [&](int64_t begin, int64_t end) {
      add(grad_z_weight, b.q_row_list, panel, begin, end);
      add(p_weight, b.grad_o_row_list, panel, begin, end);
    });
  }
}

}  // namespace

void open_backward(const AttentionBlock& b) {
  const AttentionArgs& args = *b.args;
  const AttentionGradArgs& grad = *b.grad;
  float* buffer = b.sum;
  const int64_t first_row = b.first_query * args.num_heads;
  for (int64_t m = 0; m < b.num_columns; ++m) {
    const float* o = read_row(args, grad.o, first_row + m, buffer);
    const float* grad_o = read_row(args, grad.grad_o, first_row + m, buffer + b.row_stride);
    // The rotation keeps scalar products, so it does not matter that o is turned back here and grad_o is not.
    float lanes[16] = {};
    int64_t i = 0;
    for (; i + 16 <= args.width; i += 16) {
      for (int64_t j = 0; j < 16; ++j) lanes[j] += o[i + j] * grad_o[i + j];
    }
    for (int64_t j = 0; i < args.width; ++i, ++j) lanes[j] += o[i] * grad_o[i];
    float delta = 0.0F;
    for (const float lane : lanes) delta += lane;
    b.denominator[m] = delta;
    b.largest[m] = grad.lse[first_row + m];
  }
  pack_block(b, args.q, /*rotates=*/false, b.q_rows, b.q_row_list);
  pack_block(b, grad.grad_o, args.cos != nullptr, b.grad_o_rows, b.grad_o_row_list);
  transpose_block(b, b.q_rows, b.q_columns);
  transpose_block(b, b.grad_o_rows, b.grad_o_columns);
  for (int64_t m = 0; m < b.num_columns; ++m) {
    for (int64_t i = 0; i < b.padded_width; ++i) b.sum[m * b.row_stride + i] = 0.0F;
  }
}

void backward_tile(const AttentionBlock& b, const KeyTile& t) {
  const TileShape shape(b, t);
  const int64_t first = t.first_query * shape.heads(), count = shape.num_columns();
  score_keys(b, t, b.q_columns, b.score);
  score_keys(b, t, b.grad_o_columns, b.grad_score);
  hide_unseen(b, t, b.score);
  for (int64_t m = 0; m < shape.padded_columns(); ++m) {
    b.tile_largest[m] = m < count ? b.largest[first + m] : __builtin_inff();  // P = 0 beyond the tile's columns
    b.tile_denominator[m] = m < count ? b.denominator[first + m] : 0.0F;
  }
  for (int64_t group = 0; group < count; group += kColumnGroup) {
    differentiate(b, shape.keys(group, group + kColumnGroup), group);
  }
#ifdef __AVX512BF16__
  const auto* units = static_cast<const Unit*>(b.weight_units);
  auto* p_weight = static_cast<Element*>(b.p_elements);
  auto* grad_z_weight = static_cast<Element*>(b.grad_z_elements);
#else
  const Unit* units = b.grad_score;
  float *p_weight = b.score, *grad_z_weight = b.grad_score;
#endif
  if (b.grad->grad_q != nullptr) add_weighted_keys<Into::kAdd>(b, t, units, nullptr);
  if (t.grad_rows != nullptr) add_key_gradients(b, t, p_weight, grad_z_weight);
}

void close_backward(const AttentionBlock& b) {
  if (b.grad->grad_q == nullptr) return;
  for (int64_t m = 0; m < b.num_columns; ++m) {
    write_row(*b.args, b.sum + m * b.row_stride, b.first_query * b.args->num_heads + m, b.grad->grad_q);
  }
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
