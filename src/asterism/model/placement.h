#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace asterism::model {

struct LayerDecisions;

/// The parts of a model whose tensors come and go together when several ranks share it.
enum class UnitKind { kEmbedding, kAttention, kMoe, kHead };

struct UnitId {
  UnitKind kind = UnitKind::kEmbedding;
  int64_t layer = 0;  // of kAttention and kMoe

  friend auto operator<=>(const UnitId&, const UnitId&) = default;
};

/// The tensors of one unit of which this rank holds a part only.
class UnitSource {
 public:
  virtual ~UnitSource() = default;

  /// All tensors of the unit, in the order of its slots (weights.h); undefined where the unit has none, or where
  /// Placement::run_experts has it. Those that are trained require gradients. They live as long as their handles.
  virtual std::vector<at::Tensor> gather() = 0;

  /// Takes the gradients of one backward pass, in the order of the slots; undefined where there is none. Called once
  /// after every gather that was made for a backward pass, also when nothing is defined: ranks meet here.
  virtual void add_gradients(const std::vector<at::Tensor>& grads) = 0;

  /// A scalar that requires a gradient while anything is trained and never gets one: it puts units into the graph
  /// whose trained tensors autograd cannot see.
  virtual at::Tensor anchor() const = 0;
};

/// The routed experts of one layer on the tokens of this rank.
struct ExpertCall {
  int64_t layer = 0;
  at::Tensor y_TD;       // compute type
  at::Tensor weight_TK;  // fp32 (fp64), weights of the chosen experts
  double limit = 0.0;    // of the SwiGLU
  /// Work on this rank's own tokens that is called once, while they travel.
  std::function<void()> meanwhile = {};
};

/// Where the weights of a model are when ranks share it; implemented in `parallel`. The model itself knows one rank.
class Placement {
 public:
  virtual ~Placement() = default;

  virtual std::shared_ptr<UnitSource> unit(const UnitId& id) = 0;

  /// What ops::grouped_experts gives with all experts of the layer, [T, D], wherever they are. The experts are those of
  /// decisions.expert_TK; the way that tokens took is kept in `decisions` and taken again under recomputation.
  virtual at::Tensor run_experts(const ExpertCall& call, LayerDecisions& decisions) = 0;
};

/// How the tokens of one layer travelled, opaque to the model.
class ExchangeLayout {
 public:
  virtual ~ExchangeLayout() = default;
};

}  // namespace asterism::model
