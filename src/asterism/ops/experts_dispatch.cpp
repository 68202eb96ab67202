#include "asterism/ops/experts.h"

namespace asterism::ops {

Dispatch make_dispatch(const at::Tensor& expert_TK, int64_t num_experts) {
  TORCH_CHECK(expert_TK.dim() == 2 && expert_TK.scalar_type() == at::kLong,
              "[make_dispatch] the chosen experts must be int64 [T, K], got ", expert_TK.sizes(), " ",
              expert_TK.scalar_type());
  TORCH_CHECK(num_experts >= 1, "[make_dispatch] at least one expert is needed, got ", num_experts);
  const at::Tensor chosen = expert_TK.contiguous();
  const int64_t num_rows = chosen.numel(), k = chosen.size(1);
  const int64_t* expert = chosen.const_data_ptr<int64_t>();

  Dispatch dispatch;
  dispatch.num_experts = num_experts;
  dispatch.offsets.assign(num_experts + 1, 0);
  for (int64_t i = 0; i < num_rows; ++i) {
    TORCH_CHECK(expert[i] >= 0 && expert[i] < num_experts, "[make_dispatch] expert ids must be 0 .. ", num_experts - 1,
                ", got ", expert[i], " for token ", i / k, ", slot ", i % k);
    ++dispatch.offsets[expert[i] + 1];
  }
  for (int64_t e = 0; e < num_experts; ++e) dispatch.offsets[e + 1] += dispatch.offsets[e];

  dispatch.token_R = at::empty({num_rows}, at::kLong);
  dispatch.slot_R = at::empty({num_rows}, at::kLong);
  dispatch.row_TK = at::empty(chosen.sizes(), at::kLong);
  auto* token = dispatch.token_R.mutable_data_ptr<int64_t>();
  auto* slot = dispatch.slot_R.mutable_data_ptr<int64_t>();
  auto* row = dispatch.row_TK.mutable_data_ptr<int64_t>();
  std::vector<int64_t> next(dispatch.offsets.begin(), dispatch.offsets.end() - 1);
  for (int64_t i = 0; i < num_rows; ++i) {
    const int64_t r = next[expert[i]]++;
    token[r] = i / k;
    slot[r] = i;
    row[i] = r;
  }
  return dispatch;
}

}  // namespace asterism::ops
