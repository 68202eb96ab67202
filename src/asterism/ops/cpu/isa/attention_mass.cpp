#include "asterism/ops/cpu/isa/attention_tile.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

namespace {

// Heads first .. of a query and key as score - lse; lanes beyond the last head hold -inf.
struct HeadScores {
  const float* score;
  const float* lse;
  int64_t num_heads;
  Vec scale;

  Vec operator()(int64_t first) const {
    const Vec x = subtract(multiply(load(score + first), scale), load(lse + first));
    return num_heads - first < kLanes ? keep_first(x, num_heads - first, -__builtin_inff()) : x;
  }
};

}  // namespace

void mass_tile(const AttentionBlock& b, const KeyTile& t, float* top, float* sum, int64_t stride) {
  const TileShape shape(b, t);
  const int64_t heads = shape.heads();
  score_keys(b, t, b.q_columns, b.score);
  for (int64_t q = 0; q < t.num_queries; ++q) {
    const Stretch keys = shape.keys(q * heads, (q + 1) * heads);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const HeadScores x{.score = b.score + j * b.score_stride + q * heads,
                         .lse = b.largest + (t.first_query + q) * heads,
                         .num_heads = heads,
                         .scale = fill(b.args->scale)};
      Vec largest_of_heads = x(0);
      for (int64_t h = kLanes; h < heads; h += kLanes) largest_of_heads = larger(x(h), largest_of_heads);
      const float largest_score = largest_lane(largest_of_heads);
      Vec mass = fill(0.0F);
      for (int64_t h = 0; h < heads; h += kLanes) mass = add(mass, exponential(subtract(x(h), fill(largest_score))));
      top[q * stride + j] = largest_score;
      sum[q * stride + j] = sum_of_lanes(mass);
    }
  }
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
