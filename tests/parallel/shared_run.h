#pragma once

#include <map>
#include <string>
#include <vector>

#include "asterism/model/model.h"
#include "asterism/parallel/mesh.h"

namespace asterism::testing {

/// One optimizer step's forward and backward passes on the tiny model, on one rank or on several that are threads.
struct SharedCase {
  at::ScalarType type = at::kDouble;
  bool lora = false;    // pairs on every target, the base frozen; otherwise everything is trained
  bool packed = false;  // experts and some dense matrices packed (LoRA only)
  model::Recompute recompute = model::Recompute::kBlocks;
  bool strict = false;
  // Documents of each micro-batch; an empty list is a micro-batch without any token.
  std::vector<std::vector<int64_t>> micro_batches = {{9, 4}, {13}, {5, 5, 3}, {1, 12}, {7}};
  int64_t num_experts = 0;             // 0: the tiny model's own
  int64_t untrained_micro_batch = -1;  // one whose labels are all ignored
  bool all_to_one_expert = false;      // a router bias that sends every token of learned routers to the same experts
};

struct SharedResult {
  double loss = 0.0;
  std::map<std::string, at::Tensor> gradients;  // whole; without those that got none
};

/// The plain model, micro-batch after micro-batch.
SharedResult run_alone(const SharedCase& what);

/// Micro-batch i on rank i mod ranks, round after round; gradients gathered.
SharedResult run_shared(const SharedCase& what, int ranks, const parallel::MeshRequest& request);

}  // namespace asterism::testing
