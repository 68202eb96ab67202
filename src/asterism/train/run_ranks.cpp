#include "asterism/train/run_ranks.h"

namespace asterism::train {

RunRanks::Requests RunRanks::any(const Requests& own) const {
  if (shared_ == nullptr) return own;
  const at::Tensor flags = at::tensor({int64_t{own.stop}, int64_t{own.save}}, at::kLong);
  world().all_reduce(flags, dist::Reduction::kMax, "requests to stop or save");
  return {flags[0].item<int64_t>() != 0, flags[1].item<int64_t>() != 0};
}

std::string RunRanks::of_first(const std::string& own, const char* what) const {
  return shared_ == nullptr ? own : world().all_gather_text(is_first() ? own : std::string(), what).front();
}

void RunRanks::set_step(int64_t step) const {
  if (shared_ != nullptr) world().set_step(step);
}

}  // namespace asterism::train
