#pragma once

#include <memory>
#include <string>

#include "asterism/model/block.h"
#include "asterism/parallel/expert_shards.h"
#include "asterism/parallel/sharded_tensors.h"
#include "asterism/parallel/token_routes.h"

namespace asterism::parallel {

/// The routed experts of one layer, split over the ranks of an expert group: tokens travel to the rank of their expert
/// and back, weights stay. What a rank has of an expert is cut once more over the ranks that have the same experts, and
/// gathered while it is used.
class ExpertExchange {
 public:
  struct Groups {
    std::shared_ptr<dist::Comm> expert;        // tokens travel here
    std::shared_ptr<dist::Comm> expert_shard;  // ranks with the same experts
  };

  /// Fills `out` with elements begin, begin + 1, .. of a tensor of all experts.
  using ReadSlice = std::function<void(const at::Tensor& whole, int64_t begin, const at::Tensor& out)>;

  /// Takes this rank's part of its experts of `all`, whose values `read` has: called once for each tensor, on all ranks
  /// in the same order. `name`, "layer 3 experts", names the collectives. strict: an expert's gradient is the sum over
  /// the micro-batches of a round in their order, whatever the mesh.
  ExpertExchange(std::string name, const ExpertWeights& all, int num_experts, const Groups& groups, bool strict,
                 const ReadSlice& read = read_held);

  /// [T, D] as Placement::run_experts says, differentiable in y and the weights of the tokens; gradients of the experts
  /// go to tensors(). Must outlive the graph.
  at::Tensor run(const model::ExpertCall& call, model::LayerDecisions& decisions);

  ShardedTensors& tensors() { return tensors_; }
  const ShardedTensors& tensors() const { return tensors_; }
  int num_experts() const { return num_experts_; }
  ExpertRange range() const { return range_; }

 private:
  friend struct ExchangeNode;
  friend struct ExchangeState;

  // The experts of this rank on the rows that came.
  struct LocalRun {
    at::Tensor x_RD, weight_R;                   // leaves when recorded
    std::vector<std::vector<at::Tensor>> slots;  // of every call, leaves where trained
    std::vector<at::Tensor> outputs;             // of every call
  };
  LocalRun compute(const TokenRoutes& routes, const at::Tensor& x_RD, const at::Tensor& weight_R, double limit,
                   bool recording);
  /// Gradients of x and weight of the rows; those of the experts are added to tensors().
  std::pair<at::Tensor, at::Tensor> differentiate(const LocalRun& run, const TokenRoutes& routes,
                                                  const at::Tensor& grad_RD);

  // Rows on their way to the ranks of their experts; to be read when they have been waited for.
  struct Arriving {
    at::Tensor rows;
    dist::Pending pending;
    const at::Tensor& wait() {
      pending.wait();
      return rows;
    }
  };
  Arriving start_send(const TokenRoutes& routes, const at::Tensor& rows, const char* what);
  at::Tensor send_back(const TokenRoutes& routes, const at::Tensor& rows, const char* what);

  std::string name_;
  int num_experts_;
  Groups groups_;
  bool strict_;
  ExpertRange range_;
  ExpertWeights outline_;  // formats and scales, no values
  ShardedTensors tensors_;
};

}  // namespace asterism::parallel
