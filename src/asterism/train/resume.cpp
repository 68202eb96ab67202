#include "asterism/train/resume.h"

#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "asterism/checkpoint/sliced_safetensors.h"
#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/train/resume_rules.h"

namespace asterism::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kParam = kParamPrefix;
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

Json updates_of(const AdamW& optimizer) {
  Json updates = Json::object();
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    updates[optimizer.parameters()[i].name] = optimizer.states()[i].updates;
  }
  return updates;
}

// Of the pieces of all ranks.
Json updates_of_all(const AdamW& optimizer, dist::Comm& world) {
  Json updates = Json::object();
  for (const std::string& own : world.all_gather_text(updates_of(optimizer).dump(), "update counts")) {
    updates.update(Json::parse(own));
  }
  return updates;
}

constexpr std::array kKinds = {kParam, kExpAvg, kExpAvgSq};

// The tensors of one kind that belong to the pieces.
parallel::ShardedModel::OfPiece pieces_of_kind(const AdamW& optimizer, const char* kind) {
  return [&optimizer, kind = std::string_view(kind)](size_t piece) {
    const AdamW::State& state = optimizer.states()[piece];
    if (kind == kParam) return optimizer.parameters()[piece].value.detach();
    return kind == kExpAvg ? state.exp_avg : state.exp_avg_sq;
  };
}

checkpoint::PlannedTensor planned(const std::string& name, at::ScalarType type, std::vector<int64_t> shape) {
  const auto bytes = static_cast<uint64_t>(c10::multiply_integers(shape)) * c10::elementSize(type);
  return {.name = name, .dtype = type, .shape = std::move(shape), .bytes = bytes};
}

checkpoint::SlicedWriter start_file(const std::filesystem::path& file, const std::vector<Parameter>& buffers,
                                    const parallel::ShardedModel& shared) {
  std::vector<checkpoint::PlannedTensor> tensors;
  for (const auto& [name, shape] : shared.trained_shapes()) {
    for (const char* kind : kKinds) tensors.push_back(planned(kind + name, shared.trained_type(), shape));
  }
  for (const Parameter& buffer : buffers) {
    tensors.push_back(planned(kBuffer + buffer.name, buffer.value.scalar_type(), buffer.value.sizes().vec()));
  }
  checkpoint::SlicedWriter writer(file, std::move(tensors));
  for (const Parameter& buffer : buffers) writer.write(kBuffer + buffer.name, 0, host_copy(buffer.value).view({-1}));
  return writer;
}

// Shared buffers are constants cut into shards: those of a checkpoint of the same base are the same.
void check_shared_tensors(const checkpoint::TrainState& state, const std::vector<Parameter>& buffers,
                          const parallel::ShardedModel& shared, const std::string& origin) {
  StoredTensors stored(state, origin);
  for (const auto& [name, shape] : shared.trained_shapes()) {
    for (const char* kind : kKinds) stored.take(kind + name, shape, shared.trained_type());
  }
  for (const Parameter& buffer : buffers) {
    const at::Tensor saved = stored.take(kBuffer + buffer.name, buffer.value.sizes(), buffer.value.scalar_type());
    if (!at::equal(saved, buffer.value)) {
      input_error(origin, ": ", buffer.name, " is not that of the base model; resume on one rank");
    }
  }
  stored.expect_empty();
}

int64_t update_count(const Json& updates, const std::string& name, const std::string& origin) {
  if (!updates.contains(name)) input_error(origin, ": no update count for ", name);
  return updates.at(name).get<int64_t>();
}

}  // namespace

checkpoint::TrainState capture_state(int64_t step, const AdamW& optimizer, const std::vector<Parameter>& buffers,
                                     const RunRecord& record) {
  const at::NoGradGuard no_grad;
  checkpoint::TrainState state;
  state.info = {{"step", step}, {"recipe", record.recipe}, {"base", record.base}};
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
                      const RunRecord& record, const std::string& origin) {
  const auto changes = compare_recipes(section(state, "recipe", origin), record.recipe, origin);
  compare_base(section(state, "base", origin), record.base, origin);
  const Json updates = section(state, "updates", origin);
  const at::NoGradGuard no_grad;
  StoredTensors stored(state, origin);
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Parameter& parameter = optimizer.parameters()[i];
    stored.restore(kParam + parameter.name, parameter.value.detach());
    stored.restore(kExpAvg + parameter.name, optimizer.states()[i].exp_avg);
    stored.restore(kExpAvgSq + parameter.name, optimizer.states()[i].exp_avg_sq);
    optimizer.states()[i].updates = update_count(updates, parameter.name, origin);
  }
  for (const Parameter& buffer : buffers) stored.restore(kBuffer + buffer.name, buffer.value);
  stored.expect_empty();
  for (const std::string& change : changes) log_info("resuming with another ", change);
  return state.info.at("step").get<int64_t>();
}

Json write_shared_state(int64_t step, const AdamW& optimizer, const std::vector<Parameter>& buffers,
                        const RunRecord& record, const parallel::ShardedModel& shared,
                        const std::filesystem::path& file) {
  const at::NoGradGuard no_grad;
  dist::Comm& world = *shared.comms().world;
  std::optional<checkpoint::SlicedWriter> writer;
  if (world.rank() == 0) writer.emplace(start_file(file, buffers, shared));
  for (const char* kind : kKinds) {
    shared.collect(pieces_of_kind(optimizer, kind),
                   [&](const std::string& name, int64_t begin, const at::Tensor& elements) {
                     writer->write(kind + name, begin, elements);
                   });
  }
  if (writer) writer->close();
  return {
      {"step", step}, {"recipe", record.recipe}, {"base", record.base}, {"updates", updates_of_all(optimizer, world)}};
}

int64_t restore_shared_state(const checkpoint::TrainState& state, AdamW& optimizer,
                             const std::vector<Parameter>& buffers, const RunRecord& record, const std::string& origin,
                             const parallel::ShardedModel& shared, model::SliceReader& values) {
  const auto changes = compare_recipes(section(state, "recipe", origin), record.recipe, origin);
  compare_base(section(state, "base", origin), record.base, origin);
  const Json updates = section(state, "updates", origin);
  const at::NoGradGuard no_grad;
  if (shared.comms().world->rank() == 0) check_shared_tensors(state, buffers, shared, origin);
  for (const auto& [name, shape] : shared.trained_shapes()) update_count(updates, name, origin);
  for (const char* kind : kKinds) {
    shared.scatter(pieces_of_kind(optimizer, kind), [&](const std::string& name, int64_t begin, const at::Tensor& out) {
      values.read(kind + name, begin, out);
    });
  }
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    optimizer.states()[i].updates = update_count(updates, optimizer.parameters()[i].name, origin);
  }
  for (const std::string& change : changes) log_info("resuming with another ", change);
  return state.info.at("step").get<int64_t>();
}

}  // namespace asterism::train
