#include "asterism/parallel/sharded_model.h"

#include <algorithm>

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

namespace {

std::string name_of(const std::map<const void*, std::string>& names, const at::Tensor& tensor) {
  const auto found = tensor.defined() ? names.find(tensor.unsafeGetTensorImpl()) : names.end();
  return found == names.end() ? std::string() : found->second;
}

template <typename Half>
std::vector<at::Tensor*> slots_of(const model::Config& config, const model::LayerSpec& spec, Half& half) {
  std::vector<at::Tensor*> slots;
  model::for_each_slot(config, spec, half, [&](at::Tensor& slot) { slots.push_back(&slot); });
  return slots;
}

}  // namespace

std::shared_ptr<ShardedModel> ShardedModel::share(model::Model& model, const std::vector<TrainedTensor>& trained,
                                                  const MeshComms& comms, const Options& options) {
  const std::shared_ptr<ShardedModel> shared(new ShardedModel(comms, options));
  std::map<const void*, std::string> names;
  for (const TrainedTensor& tensor : trained) names[tensor.value.unsafeGetTensorImpl()] = tensor.name;
  if (!trained.empty()) shared->anchor_ = at::zeros({}).requires_grad_(true);
  const model::Config& config = model.config;
  model::Weights& w = model.weights;
  shared->add_unit({UnitKind::kEmbedding, 0}, "embedding", {&w.embed}, names);
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    const std::string layer = text("layer ", i);
    model::LayerWeights& weights = w.layers[i];
    shared->add_unit({UnitKind::kAttention, i}, layer + " attention",
                     slots_of(config, config.layers[i], weights.attention), names);
    shared->add_experts(i, weights.moe.moe, static_cast<int>(config.num_experts), names);
    shared->add_unit({UnitKind::kMoe, i}, layer + " router and shared expert",
                     slots_of(config, config.layers[i], weights.moe), names);
  }
  shared->add_unit({UnitKind::kHead, 0}, "head",
                   {&w.hc_head.fn, &w.hc_head.base, &w.hc_head.scale, &w.norm, &w.lm_head}, names);
  model.placement = shared;
  return shared;
}

void ShardedModel::describe_slot(Unit& unit, const at::Tensor& slot, const std::map<const void*, std::string>& names) {
  unit.names.push_back(name_of(names, slot));
  unit.shapes.push_back(slot.defined() ? slot.sizes().vec() : std::vector<int64_t>());
  if (slot.defined()) whole_bytes_ += static_cast<int64_t>(slot.nbytes());
}

void ShardedModel::add_unit(const UnitId& id, const std::string& name, const std::vector<at::Tensor*>& slots,
                            const std::map<const void*, std::string>& names) {
  Unit unit;
  std::vector<at::Tensor> tensors;
  for (const at::Tensor* slot : slots) {
    tensors.push_back(*slot);
    describe_slot(unit, *slot, names);
  }
  unit.tensors = ShardedTensors(name, tensors, comms_.shard->rank(), comms_.shard->size());
  for (at::Tensor* slot : slots) slot->reset();
  dense_[id] = units_.size();
  dense_order_.push_back(units_.size());
  units_.push_back(std::move(unit));
}

void ShardedModel::add_experts(int64_t layer, model::MoeWeights& moe, int num_experts,
                               const std::map<const void*, std::string>& names) {
  Unit unit;
  const ExpertWeights all{moe.gate_up, moe.down};
  for (const at::Tensor& slot : expert_slots(all)) describe_slot(unit, slot, names);
  unit.exchange =
      std::make_unique<ExpertExchange>(text("layer ", layer, " experts"), all, num_experts,
                                       ExpertExchange::Groups{comms_.expert, comms_.expert_shard}, options_.strict);
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

// Every rank's experts, put together from their shards and then from the ranks of an expert group.
std::vector<at::Tensor> ShardedModel::whole_experts(Unit& unit, const at::Tensor& shard) {
  const ExpertExchange& exchange = *unit.exchange;
  const std::vector<at::Tensor> mine = exchange.tensors().gather_trained(*comms_.expert_shard, shard);
  std::vector<at::Tensor> wholes;
  for (size_t i = 0; i < mine.size(); ++i) {
    const size_t slot = exchange.tensors().trained()[i];
    const at::Tensor whole = at::empty(unit.shapes[slot], mine[i].options());
    for (int r = 0; r < comms_.expert->size(); ++r) {
      const ExpertRange range = expert_range(exchange.num_experts(), r, comms_.expert->size());
      std::vector<int64_t> shape = unit.shapes[slot];
      int64_t& shared = shape[is_interleaved(slot) ? 1 : 0];
      shared = shared / exchange.num_experts() * range.count;
      const at::Tensor part = r == comms_.expert->rank() ? mine[i].contiguous() : at::empty(shape, mine[i].options());
      comms_.expert->broadcast(part, r, unit.names[slot] + ": for saving");
      if (range.count > 0) put_experts(part, whole, is_interleaved(slot), exchange.num_experts(), range);
    }
    wholes.push_back(whole);
  }
  return wholes;
}

void ShardedModel::for_each_whole(const PieceValue& values, const WholeVisitor& visit) {
  size_t next = 0;
  for (Unit& unit : units_) {
    const ShardedTensors& parts = unit.parts();
    if (parts.trained().empty()) continue;
    // What is wanted of the pieces, in the layout of the shard; gaps between tensors hold nothing.
    const at::Tensor shard = at::zeros_like(parts.values());
    for (const ShardedTensors::Piece& piece : parts.pieces()) {
      const int64_t offset = piece.value.storage_offset();
      shard.narrow(0, offset, piece.value.numel()).copy_(values(next++));
    }
    const std::vector<at::Tensor> wholes =
        unit.exchange ? whole_experts(unit, shard) : parts.gather_trained(*comms_.shard, shard);
    for (size_t i = 0; i < wholes.size(); ++i) visit(unit.names[parts.trained()[i]], wholes[i]);
  }
}

ShardedModel::PieceOwner ShardedModel::owner_of(size_t piece) const {
  for (size_t u = 0; u < units_.size(); ++u) {
    const size_t count = units_[u].parts().pieces().size();
    if (piece < count) return {u, piece};
    piece -= count;
  }
  TORCH_CHECK(false, "[sharded_model] there is no piece ", piece, " beyond the last");
}

at::Tensor ShardedModel::part_of_whole(size_t piece, const at::Tensor& whole) const {
  const PieceOwner owner = owner_of(piece);
  const Unit& unit = units_[owner.unit];
  const ShardedTensors::Piece& part = unit.parts().pieces()[owner.piece];
  at::Tensor mine = whole;
  if (unit.exchange) {
    mine = experts_of_whole(whole, is_interleaved(part.slot), unit.exchange->num_experts(), unit.exchange->range());
  }
  return mine.contiguous().view({-1}).narrow(0, part.begin, part.value.numel());
}

int64_t ShardedModel::resident_bytes() const {
  int64_t bytes = 0;
  for (const Unit& unit : units_) bytes += unit.parts().resident_bytes();
  return bytes;
}

}  // namespace asterism::parallel
