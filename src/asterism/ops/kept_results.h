#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace asterism::ops {

/// Results of one operator in the first run of a piece of the model that is run again for its gradients.
using Kept = std::vector<at::Tensor>;

/// What the costly operators of such a piece computed: the second run makes the same nodes from these tensors instead
/// of computing them again, and lets go of them. Its results are bitwise those of running everything again.
class KeptResults {
 public:
  explicit KeptResults(bool wanted) : wanted_(wanted) {}

  /// The place of one operator, by a name that both runs use; null where nothing is kept. Lives as long as this.
  Kept* at(const std::string& name) { return wanted_ ? &results_[name] : nullptr; }

 private:
  bool wanted_;
  std::map<std::string, Kept> results_;
};

/// For an operator's forward: compute() where nothing was kept, and into `kept` where that is wanted; what was kept
/// otherwise, which is then gone. `kept` may be null.
template <typename Compute>
std::vector<at::Tensor> kept_or(Kept* kept, const Compute& compute) {
  if (kept != nullptr && !kept->empty()) return std::exchange(*kept, {});
  std::vector<at::Tensor> results = compute();
  if (kept != nullptr) {
    for (const at::Tensor& result : results) kept->push_back(result.detach());
  }
  return results;
}

}  // namespace asterism::ops
