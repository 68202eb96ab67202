#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asterism/dist/transport.h"
#include "asterism/parallel/mesh.h"
#include "asterism/train/recipe.h"

namespace asterism::testing {

/// Some optimizer steps of the tiny model on fixed documents: what must come out the same on any ranks.
struct LayoutCase {
  enum class Routers { kBoth, kLearned, kHash };

  at::ScalarType type = at::kDouble;
  bool lora = false;         // pairs on every target; otherwise full fine-tuning
  bool fresh_pairs = false;  // B is zero, as at the start of a run
  Routers routers = Routers::kBoth;
  double balance_weight = 0.0;
  bool indexer_kl = false;
  int64_t num_experts = 6;
  bool all_to_one_expert = false;  // every token goes to the same two experts, in every layer
  // Lengths of the documents of each row. The tokens of a document depend on how many come before it, not on its row.
  std::vector<std::vector<int64_t>> rows = {{9, 4}, {13}, {5, 5, 3}, {1, 12}, {7}};
  int64_t untrained_row = -1;  // one whose tokens all have the weight 0
  int64_t micro_batch = 1;     // rows computed at once
  bool strict = false;
  int64_t steps = 3;
  train::OptimizerSection optimizer = {};
};

struct LayoutResult {
  /// "gradient.NAME" of the first step; "weight.NAME", "exp_avg.NAME" and "exp_avg_sq.NAME" after the last; "losses"
  /// [steps, 4]: of tokens, balance and indexer, and the norm of the gradients. fp64 where they were computed so.
  std::map<std::string, at::Tensor> tensors;

  at::Tensor losses() const { return tensors.at("losses"); }
};

/// The plain model on one rank.
LayoutResult run_layout_alone(const LayoutCase& what);

/// One rank's part of the run on all of `transport`, which makes no difference to the result: whole on every rank.
LayoutResult run_layout(const LayoutCase& what, const parallel::MeshRequest& mesh,
                        const std::shared_ptr<dist::Transport>& transport);

/// On ranks that are threads; the result of the first. Expects that all have the same.
LayoutResult run_layout_threads(const LayoutCase& what, int ranks, const parallel::MeshRequest& mesh);

/// The cases that processes run too, by name (layout_program.cpp).
const std::map<std::string, LayoutCase>& named_layout_cases();

}  // namespace asterism::testing
