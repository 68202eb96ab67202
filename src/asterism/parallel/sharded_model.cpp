#include "asterism/parallel/sharded_model.h"

#include <algorithm>

#include "asterism/parallel/slice_movement.h"

namespace asterism::parallel {

using model::UnitId;
using model::UnitKind;

class ShardedModel::Source : public model::UnitSource {
 public:
  Source(std::shared_ptr<ShardedModel> model, size_t unit) : model_(std::move(model)), unit_(unit) {}

  std::vector<at::Tensor> gather() override { return model_->gather(unit_); }
  void add_gradients(const std::vector<at::Tensor>& grads) override { model_->add_gradients(unit_, grads); }
  at::Tensor anchor() const override { return model_->anchor_; }

 private:
  std::shared_ptr<ShardedModel> model_;
  size_t unit_;
};

MeshComms make_mesh_comms(const std::shared_ptr<dist::Comm>& world, const Mesh& mesh) {
  TORCH_CHECK(world->size() == mesh.ranks, "[mesh] a mesh of ", mesh.ranks, " ranks in a world of ", world->size());
  const int rank = world->rank();
  MeshComms comms{mesh, world, {}, {}, {}, {}};
  comms.shard = world->subgroup(mesh.shard_group(rank), "shard");
  comms.replicate = world->subgroup(mesh.replicate_group(rank), "replicate");
  comms.expert = world->subgroup(mesh.expert_group(rank), "expert");
  comms.expert_shard = world->subgroup(mesh.expert_shard_group(rank), "expert_shard");
  return comms;
}

// What the slots of a model are called, and where the values of outlines are. Tensors are told by identity.
class ShardedModel::Slots {
 public:
  Slots(model::Model& model, const std::vector<TrainedTensor>& trained, model::SliceReader* values) : values_(values) {
    model::for_each_named_slot(model.config, model.weights, [&](const std::string& name, at::Tensor& slot) {
      names_[slot.unsafeGetTensorImpl()] = name;
    });
    for (const TrainedTensor& tensor : trained) trained_[tensor.value.unsafeGetTensorImpl()] = tensor.name;
  }

  /// "" of a tensor that is not trained.
  std::string trained_name(const at::Tensor& tensor) const {
    const auto found = tensor.defined() ? trained_.find(tensor.unsafeGetTensorImpl()) : trained_.end();
    return found == trained_.end() ? std::string() : found->second;
  }

  void read(const at::Tensor& whole, int64_t begin, const at::Tensor& out) const {
    if (!whole.is_meta()) return read_held(whole, begin, out);
    TORCH_CHECK(values_ != nullptr, "[sharded_model] nothing to read the values of outlines from");
    values_->read(names_.at(whole.unsafeGetTensorImpl()), begin, out);
  }

 private:
  std::map<const void*, std::string> names_, trained_;
  model::SliceReader* values_;
};

namespace {

template <typename Half>
std::vector<at::Tensor*> slots_of(const model::Config& config, const model::LayerSpec& spec, Half& half) {
  std::vector<at::Tensor*> slots;
  model::for_each_slot(config, spec, half, [&](at::Tensor& slot) { slots.push_back(&slot); });
  return slots;
}

}  // namespace

std::shared_ptr<ShardedModel> ShardedModel::share(model::Model& model, const std::vector<TrainedTensor>& trained,
                                                  const MeshComms& comms, const Options& options,
                                                  model::SliceReader* values) {
  const at::NoGradGuard no_grad;
  const std::shared_ptr<ShardedModel> shared(new ShardedModel(comms, options));
  const Slots known(model, trained, values);
  if (!trained.empty()) shared->anchor_ = at::zeros({}).requires_grad_(true);
  const model::Config& config = model.config;
  model::Weights& w = model.weights;
  shared->add_unit({UnitKind::kEmbedding, 0}, "embedding", {&w.embed}, known);
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    const std::string layer = text("layer ", i);
    model::LayerWeights& weights = w.layers[i];
    shared->add_unit({UnitKind::kAttention, i}, layer + " attention",
                     slots_of(config, config.layers[i], weights.attention), known);
    shared->add_experts(i, weights.moe.moe, static_cast<int>(config.num_experts), known);
    shared->add_unit({UnitKind::kMoe, i}, layer + " router and shared expert",
                     slots_of(config, config.layers[i], weights.moe), known);
  }
  shared->add_unit({UnitKind::kHead, 0}, "head",
                   {&w.hc_head.fn, &w.hc_head.base, &w.hc_head.scale, &w.norm, &w.lm_head}, known);
  model.placement = shared;
  return shared;
}

void ShardedModel::describe_slot(Unit& unit, const at::Tensor& slot, const Slots& known) {
  unit.names.push_back(known.trained_name(slot));
  unit.shapes.push_back(slot.defined() ? slot.sizes().vec() : std::vector<int64_t>());
  if (slot.defined()) whole_bytes_ += static_cast<int64_t>(slot.nbytes());
}

void ShardedModel::add_unit(const UnitId& id, const std::string& name, const std::vector<at::Tensor*>& slots,
                            const Slots& known) {
  Unit unit;
  std::vector<at::Tensor> tensors;
  for (const at::Tensor* slot : slots) {
    tensors.push_back(*slot);
    describe_slot(unit, *slot, known);
  }
  unit.tensors =
      ShardedTensors(name, tensors, comms_.shard->rank(), comms_.shard->size(),
                     [&](size_t slot, int64_t begin, const at::Tensor& out) { known.read(tensors[slot], begin, out); });
  for (at::Tensor* slot : slots) slot->reset();
  dense_[id] = units_.size();
  dense_order_.push_back(units_.size());
  units_.push_back(std::move(unit));
}

void ShardedModel::add_experts(int64_t layer, model::MoeWeights& moe, int num_experts, const Slots& known) {
  Unit unit;
  const ExpertWeights all{moe.gate_up, moe.down};
  for (const at::Tensor& slot : expert_slots(all)) describe_slot(unit, slot, known);
  unit.exchange = std::make_unique<ExpertExchange>(
      text("layer ", layer, " experts"), all, num_experts, ExpertExchange::Groups{comms_.expert, comms_.expert_shard},
      options_.strict,
      [&](const at::Tensor& whole, int64_t begin, const at::Tensor& out) { known.read(whole, begin, out); });
  const ExpertWeights outline = outline_of(all);
  moe.gate_up = outline.gate_up;
  moe.down = outline.down;
  experts_[layer] = units_.size();
  units_.push_back(std::move(unit));
}

std::shared_ptr<model::UnitSource> ShardedModel::unit(const UnitId& id) {
  return std::make_shared<Source>(shared_from_this(), dense_.at(id));
}

at::Tensor ShardedModel::run_experts(const model::ExpertCall& call, model::LayerDecisions& decisions) {
  return units_[experts_.at(call.layer)].exchange->run(call, decisions);
}

// Passes walk the units forwards or backwards: the next one's gather runs while this one computes.
std::vector<at::Tensor> ShardedModel::gather(size_t unit) {
  const auto position = static_cast<size_t>(std::ranges::find(dense_order_, unit) - dense_order_.begin());
  std::vector<at::Tensor> tensors = units_[unit].tensors.gather(*comms_.shard);
  const bool forwards = position == 0 || position > last_gathered_;
  last_gathered_ = position;
  if (forwards && position + 1 < dense_order_.size()) {
    units_[dense_order_[position + 1]].tensors.start_gather(*comms_.shard);
  } else if (!forwards && position > 1) {
    units_[dense_order_[position - 1]].tensors.start_gather(*comms_.shard);
  }
  return tensors;
}

void ShardedModel::add_gradients(size_t unit, const std::vector<at::Tensor>& grads) {
  // In strict mode every replica sums what all ranks have, in their order, in place of its own group first.
  dist::Comm& comm = options_.strict ? *comms_.world : *comms_.shard;
  units_[unit].tensors.add_gradients(comm, {grads}, options_.strict ? comms_.mesh.replicate : 1);
}

void ShardedModel::finish_gradients() {
  std::vector<int64_t> touched;
  for (const Unit& unit : units_) {
    for (const size_t slot : unit.parts().trained()) touched.push_back(unit.parts().touched()[slot]);
  }
  const at::Tensor flags = at::tensor(touched, at::kLong);
  comms_.world->all_reduce(flags, dist::Reduction::kMax, "tensors with a gradient");
  const int64_t* next = flags.const_data_ptr<int64_t>();
  for (Unit& unit : units_) {
    const at::Tensor& grad = unit.parts().grad();
    if (!options_.strict && !unit.exchange && grad.defined()) {
      comms_.replicate->all_reduce(grad, dist::Reduction::kSum, "gradients of the replicas");
    }
    std::vector<bool> any(unit.names.size(), false);
    for (const size_t slot : unit.parts().trained()) any[slot] = *next++ != 0;
    unit.parts().set_touched(any);
  }
}

void ShardedModel::drop_gradients() {
  for (Unit& unit : units_) unit.parts().drop_gradients();
}

std::vector<TrainedPiece> ShardedModel::pieces() const {
  std::vector<TrainedPiece> pieces;
  for (const Unit& unit : units_) {
    for (const ShardedTensors::Piece& piece : unit.parts().pieces()) {
      const at::Tensor grad = unit.parts().touched()[piece.slot] ? piece.grad : at::Tensor();
      pieces.push_back({unit.names[piece.slot], piece.value, grad, unit.exchange != nullptr});
    }
  }
  return pieces;
}

std::vector<std::pair<std::string, std::vector<int64_t>>> ShardedModel::trained_shapes() const {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const Unit& unit : units_) {
    for (const size_t slot : unit.parts().trained()) shapes.emplace_back(unit.names[slot], unit.shapes[slot]);
  }
  return shapes;
}

at::ScalarType ShardedModel::trained_type() const {
  for (const Unit& unit : units_) {
    if (!unit.parts().trained().empty()) return unit.parts().values().scalar_type();
  }
  return at::kFloat;
}

// Every trained tensor on every rank: with an empty one where the rank has nothing of it, and with where in the whole
// tensor its elements begin. Interleaved experts are counted as if those of one rank of the expert group followed those
// of the one before.
void ShardedModel::for_each_trained(const OfPiece& of_piece, const VisitTrained& visit) const {
  size_t next = 0;
  for (const Unit& unit : units_) {
    const std::vector<ShardedTensors::Piece>& pieces = unit.parts().pieces();
    size_t in_unit = 0;
    for (const size_t slot : unit.parts().trained()) {
      const bool here = in_unit < pieces.size() && pieces[in_unit].slot == slot;
      if (!here) {
        visit(unit, slot, 0, at::empty({0}, trained_type()));
        continue;
      }
      visit(unit, slot, pieces[in_unit++].begin, of_piece(next++));
    }
  }
}

void ShardedModel::collect(const OfPiece& values, const NamedSink& sink) const {
  for_each_trained(values, [&](const Unit& unit, size_t slot, int64_t begin, const at::Tensor& own) {
    const std::string& name = unit.names[slot];
    if (unit.exchange && is_interleaved(slot)) return collect_interleaved(unit, slot, begin, own, sink);
    const auto pass_on = [&](int64_t first, const at::Tensor& elements) { sink(name, first, elements); };
    if (!unit.exchange) {
      // Copies of the model hold the same.
      const at::Tensor once = comms_.replicate->rank() == 0 ? own : at::empty({0}, own.options());
      return collect_slices(*comms_.world, begin, once, pass_on, name);
    }
    const int64_t of_expert = c10::multiply_integers(unit.shapes[slot]) / unit.exchange->num_experts();
    collect_slices(*comms_.world, of_expert * unit.exchange->range().first + begin, own, pass_on, name);
  });
}

void ShardedModel::collect_interleaved(const Unit& unit, size_t slot, int64_t begin, const at::Tensor& own,
                                       const NamedSink& sink) const {
  const int num_experts = unit.exchange->num_experts();
  const int64_t elements = c10::multiply_integers(unit.shapes[slot]), of_expert = elements / num_experts;
  const bool is_first = comms_.world->rank() == 0;
  const at::Tensor parts = at::empty({is_first ? elements : 0}, own.options());
  collect_slices(
      *comms_.world, of_expert * unit.exchange->range().first + begin, own,
      [&](int64_t first, const at::Tensor& part) { parts.narrow(0, first, part.numel()).copy_(part); },
      unit.names[slot]);
  if (!is_first) return;
  const at::Tensor whole = at::empty(unit.shapes[slot], own.options());
  for (int r = 0; r < comms_.expert->size(); ++r) {
    const ExpertRange range = expert_range(num_experts, r, comms_.expert->size());
    if (range.count == 0) continue;
    put_experts(parts.narrow(0, of_expert * range.first, of_expert * range.count), whole, true, num_experts, range);
  }
  sink(unit.names[slot], 0, whole.view({-1}));
}

void ShardedModel::scatter(const OfPiece& targets, const NamedRead& read) const {
  for_each_trained(targets, [&](const Unit& unit, size_t slot, int64_t begin, const at::Tensor& own) {
    const std::string& name = unit.names[slot];
    if (!unit.exchange) return read(name, begin, own);
    read_experts(unit.shapes[slot], is_interleaved(slot), unit.exchange->num_experts(), unit.exchange->range(), begin,
                 own, [&](int64_t first, const at::Tensor& out) { read(name, first, out); });
  });
}

int64_t ShardedModel::resident_bytes() const {
  int64_t bytes = 0;
  for (const Unit& unit : units_) bytes += unit.parts().resident_bytes();
  return bytes;
}

}  // namespace asterism::parallel
