#include "asterism/parallel/expert_shards.h"

#include <gtest/gtest.h>

#include "asterism/parallel/sharded_tensors.h"

#include "tests/support/gradients.h"
#include "tests/support/packed_weights.h"

namespace asterism::parallel {
namespace {

constexpr int kSharedExperts = 6, kSharedWidth = 32, kSharedHidden = 64, kPairRank = 2;

ExpertWeights some_experts(bool packed) {
  ExpertWeights experts;
  if (packed) {
    experts.gate_up.weight =
        testing::random_packed(testing::Packing::kFp4, {kSharedExperts, 2 * kSharedWidth, kSharedHidden}, "up", 2);
    experts.down.weight =
        testing::random_packed(testing::Packing::kFp8, {kSharedExperts, kSharedHidden, kSharedWidth}, "down");
  } else {
    experts.gate_up.weight = testing::random_tensor({kSharedExperts, 2 * kSharedWidth, kSharedHidden}, "up");
    experts.down.weight = testing::random_tensor({kSharedExperts, kSharedHidden, kSharedWidth}, "down");
  }
  experts.gate_up.lora =
      ops::LoraPair{testing::random_tensor({kSharedExperts * kPairRank, kSharedHidden}, "a"),
                    testing::random_tensor({2 * kSharedWidth, kPairRank * kSharedExperts}, "b"), 0.5};
  experts.gate_up.lora->b_NR.requires_grad_(true);
  return experts;
}

// What one expert's matrix with its update is, from the layout as it is written down (golden/hf README section 5).
at::Tensor merged_of_expert(const model::Projection& matrix, int num_experts, int expert) {
  at::Tensor merged = matrix.weight.to(at::kDouble)[expert];
  if (!matrix.lora) return merged;
  const at::Tensor a = matrix.lora->a_RK.detach(), b = matrix.lora->b_NR.detach();
  for (int r = 0; r < kPairRank; ++r) {
    merged = merged + matrix.lora->scale * at::outer(b.select(1, r * num_experts + expert), a[expert * kPairRank + r]);
  }
  return merged;
}

// The experts of a range, read slice by slice as a rank reads them.
ExpertWeights read_part(const ExpertWeights& all, const ExpertRange& range) {
  const std::vector<at::Tensor> wholes = expert_slots(all);
  std::vector<at::Tensor> parts = outlines_of_experts(all, kSharedExperts, range);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].defined()) continue;
    EXPECT_TRUE(parts[i].is_meta());
    const bool trained = parts[i].requires_grad();
    const at::Tensor part = at::empty(parts[i].sizes(), parts[i].scalar_type());
    const int64_t half = part.numel() / 2;
    for (const auto& [begin, count] : {std::pair(int64_t{0}, half), std::pair(half, part.numel() - half)}) {
      read_experts(wholes[i].sizes(), is_interleaved(i), kSharedExperts, range, begin,
                   part.view({-1}).narrow(0, begin, count),
                   [&](int64_t first, const at::Tensor& out) { read_held(wholes[i], first, out); });
    }
    parts[i] = at::Tensor(part).requires_grad_(trained);
  }
  return with_expert_slots(all, parts);
}

TEST(ExpertShards, APartHoldsTheSameExperts) {
  for (const bool packed : {false, true}) {
    const ExpertWeights all = some_experts(packed);
    for (const int ranks : {1, 2, 4, 8}) {
      for (int position = 0; position < ranks; ++position) {
        const ExpertRange range = expert_range(kSharedExperts, position, ranks);
        const ExpertWeights part = read_part(all, range);
        for (int e = 0; e < range.count; ++e) {
          EXPECT_TRUE(at::equal(merged_of_expert(part.gate_up, range.count, e),
                                merged_of_expert(all.gate_up, kSharedExperts, range.first + e)));
          EXPECT_TRUE(at::equal(merged_of_expert(part.down, range.count, e),
                                merged_of_expert(all.down, kSharedExperts, range.first + e)));
        }
        EXPECT_TRUE(part.gate_up.lora->b_NR.requires_grad());
        EXPECT_FALSE(part.gate_up.lora->a_RK.requires_grad());
      }
    }
  }
}

TEST(ExpertShards, PartsArePutBackWhereTheyCameFrom) {
  const ExpertWeights all = some_experts(false);
  const std::vector<at::Tensor> whole = expert_slots(all);
  for (const int ranks : {1, 3, 4, 8}) {
    for (size_t slot = 0; slot < whole.size(); ++slot) {
      if (!whole[slot].defined()) continue;
      const at::Tensor again = at::zeros_like(whole[slot].detach());
      for (int position = 0; position < ranks; ++position) {
        const ExpertRange range = expert_range(kSharedExperts, position, ranks);
        if (range.count == 0) continue;
        const at::Tensor part = experts_of_whole(whole[slot].detach(), is_interleaved(slot), kSharedExperts, range);
        put_experts(part, again, is_interleaved(slot), kSharedExperts, range);
      }
      EXPECT_TRUE(at::equal(again, whole[slot].detach())) << slot;
    }
  }
}

}  // namespace
}  // namespace asterism::parallel
