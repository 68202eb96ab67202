#include "asterism/ops/cpu/indexer_panel.h"

#include "asterism/ops/cpu/isa/products.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

void score_index_panel(const IndexArgs& args, int64_t query, const float* panel, float* work, float* score) {
  const float* q = args.q + query * args.num_heads * args.width;
  const float* weight = args.weight + query * args.num_heads;
  for (int64_t i = 0; i < kIndexPanel; i += kLanes) store(score + i, fill(0.0F));
  for (int64_t first = 0; first < args.num_heads; first += kMaxRows) {
    const int64_t count = smallest(kMaxRows, args.num_heads - first);
    ProductRows p;
    p.step = 1, p.first = 0, p.last = args.width;
    for (int64_t h = 0; h < count; ++h) {
      p.a[h] = q + (first + h) * args.width;
      p.c[h] = work + h * kIndexPanel;
    }
    multiply_columns<Into::kSet>(p, count, UnitRows{panel, kIndexPanel}, 0, kIndexPanel);
    for (int64_t h = 0; h < count; ++h) {
      const Vec w = fill(weight[first + h]);
      for (int64_t i = 0; i < kIndexPanel; i += kLanes) {
        const Vec relu = larger(fill(0.0F), load(work + h * kIndexPanel + i));  // NaN passes
        store(score + i, multiply_add(w, relu, load(score + i)));
      }
    }
  }
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
