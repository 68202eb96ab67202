#include "asterism/ops/cpu/indexer_panel.h"

#include "asterism/ops/cpu/isa/products.h"

namespace asterism::ops::cpu::ASTERISM_ISA {

void score_index_panel(const IndexArgs& args, int64_t query, const float* panel, float* work, float* score) {
  const float* q = args.q + query * args.num_heads * args.width;
  const float* weight = args.weight + query * args.num_heads;
  for (int64_t i = 0; i < kIndexPanel; i += kLanes) store(score + i, fill(0.0F));
  for_each_row_tile(args.num_heads, [&](int64_t begin, int64_t end) {
    ProductRows p;
    p.step = 1, p.first = 0, p.last = args.width;
    for (int64_t h = begin; h < end; ++h) {
      p.a[h - begin] = q + h * args.width;
      p.c[h - begin] = work + (h - begin) * kIndexPanel;
    }
    multiply_columns<Into::kSet>(p, end - begin, UnitRows{panel, kIndexPanel}, 0, kIndexPanel);
    for (int64_t i = 0; i < kIndexPanel; i += kLanes) {
      Vec sum = load(score + i);
      for (int64_t h = begin; h < end; ++h) {
        const Vec relu = larger(fill(0.0F), load(work + (h - begin) * kIndexPanel + i));  // NaN passes
        sum = multiply_add(fill(weight[h]), relu, sum);
      }
      store(score + i, sum);
    }
  });
}

}  // namespace asterism::ops::cpu::ASTERISM_ISA
