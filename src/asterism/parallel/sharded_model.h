#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "asterism/model/model.h"
#include "asterism/model/slices.h"
#include "asterism/parallel/expert_exchange.h"
#include "asterism/parallel/mesh.h"
#include "asterism/parallel/sharded_tensors.h"

namespace asterism::parallel {

/// The groups of one rank, made once at the start of a run by all ranks together.
struct MeshComms {
  Mesh mesh;
  std::shared_ptr<dist::Comm> world, shard, replicate, expert, expert_shard;
};

/// The world's size must be mesh.ranks.
MeshComms make_mesh_comms(const std::shared_ptr<dist::Comm>& world, const Mesh& mesh);

/// A tensor that is trained, under its global name, as the caller knows it in the whole model.
struct TrainedTensor {
  std::string name;
  at::Tensor value;  // the slot of the model: tensors are told by identity
};

/// The part of one trained tensor that this rank updates: a view of the fp32 shard, [n], and of its gradient.
struct TrainedPiece {
  std::string name;
  at::Tensor value;
  at::Tensor grad;         // of the step; undefined when no rank has one
  bool is_expert = false;  // on the ranks of its expert group alone; others are on every copy of the model
};

/// A model whose weights the ranks of a mesh share. Dense weights: each unit (embedding, halves of blocks, head) is cut
/// over the shard group, gathered before use, the next one ahead of time, and dropped after it; its gradients are
/// summed into fp32 shards. Experts: expert_exchange.h. Every rank runs the same units in the same order on rows of its
/// own, also without any; then all collectives agree.
class ShardedModel : public model::Placement, public std::enable_shared_from_this<ShardedModel> {
 public:
  struct Options {
    // Sums of gradients in the order of micro-batches, whatever the mesh: the same bits for every number of ranks.
    bool strict = false;
  };

  /// Takes the weights out of `model`, which knows what is trained, and leaves this rank's part; model.placement
  /// becomes this object. Tensors may be outlines (model/slices.h): of those, this rank's part alone is read from
  /// `values`, by the names of model::for_each_named_slot and in the same order on every rank, straight into its place.
  /// MTP layers stay as they are, frozen.
  static std::shared_ptr<ShardedModel> share(model::Model& model, const std::vector<TrainedTensor>& trained,
                                             const MeshComms& comms, const Options& options,
                                             model::SliceReader* values = nullptr);

  std::shared_ptr<model::UnitSource> unit(const model::UnitId& id) override;
  at::Tensor run_experts(const model::ExpertCall& call, model::LayerDecisions& decisions) override;

  /// After the last backward pass of a step: sums over the replicas, and finds out which tensors got a gradient on any
  /// rank; the gradients of all others are dropped. All ranks call it.
  void finish_gradients();
  void drop_gradients();

  /// This rank's pieces, in the order of the network; gradients are those of finish_gradients.
  std::vector<TrainedPiece> pieces() const;

  /// Every trained tensor with its whole shape, on whatever ranks it lies, in the order of the network.
  std::vector<std::pair<std::string, std::vector<int64_t>>> trained_shapes() const;
  /// The type of all masters: fp32, or fp64 in tests.
  at::ScalarType trained_type() const;

  /// A flat tensor for a piece: its value, a moment of it. Pieces are asked for in their order.
  using OfPiece = std::function<at::Tensor(size_t piece)>;
  using NamedSink = std::function<void(const std::string& name, int64_t begin, const at::Tensor& elements)>;
  /// Brings the trained tensors, or what `values` says of each piece, to rank 0: `sink` is called there with elements
  /// begin, begin + 1, .. of each, tensor by tensor in the order of the network, until all have come. Memory stays
  /// bounded: by a stretch of some megabytes, or by two copies of a LoRA matrix whose experts are interleaved. All
  /// ranks call it.
  void collect(const OfPiece& values, const NamedSink& sink) const;
  /// The other way: fills a tensor like each piece, in the order of the network, with its part of the whole one of its
  /// name. `read` is asked for every tensor on all ranks in the same order (SliceReader::read).
  using NamedRead = std::function<void(const std::string& name, int64_t begin, const at::Tensor& out)>;
  void scatter(const OfPiece& targets, const NamedRead& read) const;

  const MeshComms& comms() const { return comms_; }
  bool is_strict() const { return options_.strict; }
  /// Memory of this rank's parts, and of the whole model.
  int64_t resident_bytes() const;
  int64_t whole_bytes() const { return whole_bytes_; }

 private:
  class Source;
  struct Unit {
    ShardedTensors tensors;
    std::vector<std::string> names;            // by slot; of trained ones
    std::vector<std::vector<int64_t>> shapes;  // by slot, of the whole tensor
    std::unique_ptr<ExpertExchange> exchange;  // of an expert unit: it holds the tensors
    ShardedTensors& parts() { return exchange ? exchange->tensors() : tensors; }
    const ShardedTensors& parts() const { return exchange ? exchange->tensors() : tensors; }
  };

  class Slots;
  using VisitTrained = std::function<void(const Unit& unit, size_t slot, int64_t begin, const at::Tensor& own)>;
  void for_each_trained(const OfPiece& of_piece, const VisitTrained& visit) const;
  void collect_interleaved(const Unit& unit, size_t slot, int64_t begin, const at::Tensor& own,
                           const NamedSink& sink) const;

  ShardedModel(const MeshComms& comms, const Options& options) : comms_(comms), options_(options) {}

  void describe_slot(Unit& unit, const at::Tensor& slot, const Slots& known);
  void add_unit(const model::UnitId& id, const std::string& name, const std::vector<at::Tensor*>& slots,
                const Slots& known);
  void add_experts(int64_t layer, model::MoeWeights& moe, int num_experts, const Slots& known);
  std::vector<at::Tensor> gather(size_t unit);
  void add_gradients(size_t unit, const std::vector<at::Tensor>& grads);

  MeshComms comms_;
  Options options_;
  std::vector<Unit> units_;                // in the order of the forward pass
  std::map<model::UnitId, size_t> dense_;  // unit of an id
  std::map<int64_t, size_t> experts_;      // unit of a layer's experts
  std::vector<size_t> dense_order_;        // dense units in the order in which they are gathered
  size_t last_gathered_ = 0;               // position in dense_order_
  at::Tensor anchor_;
  int64_t whole_bytes_ = 0;
};

}  // namespace asterism::parallel
