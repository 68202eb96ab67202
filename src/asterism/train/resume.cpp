#include "asterism/train/resume.h"

#include <map>

#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/train/resume_rules.h"

namespace asterism::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kParam = "param.";
constexpr const char* kExpAvg = "exp_avg.";
constexpr const char* kExpAvgSq = "exp_avg_sq.";
constexpr const char* kBuffer = "buffer.";

at::Tensor host_copy(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU)).copy_(tensor);
}

Json section(const checkpoint::TrainState& state, const char* name, const std::string& origin) {
  const auto found = state.info.find(name);
  if (found == state.info.end() || !found->is_object()) input_error(origin, ": state.json has no object ", name);
  return *found;
}

/// The message names each part that differs: "weights", "config", "tokenizer".
void compare_base(const Json& saved, const Json& wanted, const std::string& origin) {
  std::string differences;
  for (const auto& [part, value] : wanted.items()) {
    const Json before = saved.contains(part) ? saved.at(part) : Json();
    if (before != value) differences += text("\n  ", part, ": ", before.dump(), " then, ", value.dump(), " now");
  }
  if (differences.empty()) return;
  input_error(origin,
              ": the base model (model.path, model.tokenizer) is not the one that the run started from:", differences,
              "\nPoint it at that checkpoint, or choose another name for a new run");
}

/// Hands out the stored tensors by name, each once.
class StoredTensors {
 public:
  StoredTensors(const checkpoint::TrainState& state, const std::string& origin) : origin_(origin) {
    for (const auto& named : state.tensors) stored_[named.name] = named.tensor;
  }

  /// The stored tensor, which must have the shape and type of a tensor of this run.
  at::Tensor take(const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
    const auto found = stored_.find(name);
    if (found == stored_.end()) input_error(origin_, ": tensor ", name, " is missing");
    const at::Tensor tensor = found->second;
    if (tensor.sizes() != sizes || tensor.scalar_type() != type) {
      input_error(origin_, ": tensor ", name, " is ", tensor.scalar_type(), " ", tensor.sizes(), ", expected ", type,
                  " ", sizes);
    }
    stored_.erase(found);
    return tensor;
  }

  void restore(const std::string& name, const at::Tensor& target) {
    target.copy_(take(name, target.sizes(), target.scalar_type()));
  }

  void expect_empty() const {
    if (stored_.empty()) return;
    input_error(origin_, ": ", stored_.size(), " tensors that this run does not train, the first is ",
                stored_.begin()->first);
  }

 private:
  const std::string& origin_;
  std::map<std::string, at::Tensor> stored_;
};

}  // namespace

namespace {

Json updates_of(const AdamW& optimizer) {
  Json updates = Json::object();
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    updates[optimizer.parameters()[i].name] = optimizer.states()[i].updates;
  }
  return updates;
}

// Whole tensors on rank 0, and the update counts of all ranks.
void capture_shared(checkpoint::TrainState& state, const AdamW& optimizer, parallel::ShardedModel& shared) {
  dist::Comm& world = *shared.comms().world;
  const auto& parameters = optimizer.parameters();
  const auto& states = optimizer.states();
  const auto add = [&](const char* kind, const parallel::ShardedModel::PieceValue& values) {
    shared.for_each_whole(values, [&](const std::string& name, const at::Tensor& whole) {
      if (world.rank() == 0) state.tensors.push_back({kind + name, host_copy(whole), {}});
    });
  };
  add(kParam, [&](size_t i) { return parameters[i].value; });
  add(kExpAvg, [&](size_t i) { return states[i].exp_avg; });
  add(kExpAvgSq, [&](size_t i) { return states[i].exp_avg_sq; });
  Json updates = Json::object();
  for (const std::string& own : world.all_gather_text(updates_of(optimizer).dump(), "update counts")) {
    updates.update(Json::parse(own));
  }
  state.info["updates"] = std::move(updates);
}

void restore_shared(StoredTensors& stored, const Json& updates, AdamW& optimizer, const parallel::ShardedModel& shared,
                    const std::string& origin) {
  const std::vector<parallel::TrainedPiece> pieces = shared.pieces();
  std::map<std::string, std::vector<size_t>> by_name;
  for (size_t i = 0; i < pieces.size(); ++i) by_name[pieces[i].name].push_back(i);
  for (const auto& [name, shape] : shared.trained_shapes()) {
    const at::ScalarType type = shared.trained_type();
    const at::Tensor value = stored.take(kParam + name, shape, type);
    const at::Tensor exp_avg = stored.take(kExpAvg + name, shape, type);
    const at::Tensor exp_avg_sq = stored.take(kExpAvgSq + name, shape, type);
    if (!updates.contains(name)) input_error(origin, ": no update count for ", name);
    for (const size_t i : by_name[name]) {
      AdamW::State& state = optimizer.states()[i];
      optimizer.parameters()[i].value.detach().copy_(shared.part_of_whole(i, value));
      state.exp_avg.copy_(shared.part_of_whole(i, exp_avg));
      state.exp_avg_sq.copy_(shared.part_of_whole(i, exp_avg_sq));
      state.updates = updates.at(name).get<int64_t>();
    }
  }
}

// Shared buffers are constants cut into shards: those of a checkpoint of the same base are the same.
void check_buffer(StoredTensors& stored, const Parameter& buffer, const std::string& origin) {
  const at::Tensor saved = stored.take(kBuffer + buffer.name, buffer.value.sizes(), buffer.value.scalar_type());
  if (!at::equal(saved, buffer.value)) {
    input_error(origin, ": ", buffer.name, " is not that of the base model; resume on one rank");
  }
}

}  // namespace

checkpoint::TrainState capture_state(int64_t step, const AdamW& optimizer, const std::vector<Parameter>& buffers,
                                     const RunRecord& record, parallel::ShardedModel* shared) {
  const at::NoGradGuard no_grad;
  checkpoint::TrainState state;
  state.info = {{"step", step}, {"recipe", record.recipe}, {"base", record.base}};
  if (shared != nullptr) {
    capture_shared(state, optimizer, *shared);
    if (shared->comms().world->rank() != 0) return state;
    for (const Parameter& buffer : buffers) {
      state.tensors.push_back({kBuffer + buffer.name, host_copy(buffer.value), {}});
    }
    return state;
  }
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Parameter& parameter = optimizer.parameters()[i];
    state.tensors.push_back({kParam + parameter.name, host_copy(parameter.value), {}});
    state.tensors.push_back({kExpAvg + parameter.name, host_copy(optimizer.states()[i].exp_avg), {}});
    state.tensors.push_back({kExpAvgSq + parameter.name, host_copy(optimizer.states()[i].exp_avg_sq), {}});
  }
  state.info["updates"] = updates_of(optimizer);
  for (const Parameter& buffer : buffers) state.tensors.push_back({kBuffer + buffer.name, host_copy(buffer.value), {}});
  return state;
}

int64_t restore_state(const checkpoint::TrainState& state, AdamW& optimizer, const std::vector<Parameter>& buffers,
                      const RunRecord& record, const std::string& origin, const parallel::ShardedModel* shared) {
  const auto changes = compare_recipes(section(state, "recipe", origin), record.recipe, origin);
  compare_base(section(state, "base", origin), record.base, origin);
  const Json updates = section(state, "updates", origin);
  const at::NoGradGuard no_grad;
  StoredTensors stored(state, origin);
  if (shared != nullptr) restore_shared(stored, updates, optimizer, *shared, origin);
  for (size_t i = 0; shared == nullptr && i < optimizer.parameters().size(); ++i) {
    const Parameter& parameter = optimizer.parameters()[i];
    stored.restore(kParam + parameter.name, parameter.value.detach());
    stored.restore(kExpAvg + parameter.name, optimizer.states()[i].exp_avg);
    stored.restore(kExpAvgSq + parameter.name, optimizer.states()[i].exp_avg_sq);
    if (!updates.contains(parameter.name)) input_error(origin, ": no update count for ", parameter.name);
    optimizer.states()[i].updates = updates.at(parameter.name).get<int64_t>();
  }
  for (const Parameter& buffer : buffers) {
    if (shared != nullptr) {
      check_buffer(stored, buffer, origin);
    } else {
      stored.restore(kBuffer + buffer.name, buffer.value);
    }
  }
  stored.expect_empty();
  for (const std::string& change : changes) log_info("resuming with another ", change);
  return state.info.at("step").get<int64_t>();
}

}  // namespace asterism::train
