#pragma once

#include <cstdint>

#include "asterism/ops/cpu/indexer_kernel.h"

namespace asterism::ops::cpu {

/// What indexer_kernel.cpp and the code for one instruction set (isa/indexer_panel.cpp) share; plain data only.

constexpr int64_t kIndexPanel = 64;  // keys side by side: a panel is [Di, kIndexPanel]

/// score[0 .. kIndexPanel - 1] of `query` for the keys of a panel. `work` holds 6 * kIndexPanel floats.
using ScoreIndexPanel = void (*)(const IndexArgs& args, int64_t query, const float* panel, float* work, float* score);

#if defined(__x86_64__)
namespace isa_avx2 {
void score_index_panel(const IndexArgs& args, int64_t query, const float* panel, float* work, float* score);
}
namespace isa_avx512 {
void score_index_panel(const IndexArgs& args, int64_t query, const float* panel, float* work, float* score);
}
#endif

}  // namespace asterism::ops::cpu
