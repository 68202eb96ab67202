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

  void restore(const std::string& name, const at::Tensor& target) {
    const auto found = stored_.find(name);
    if (found == stored_.end()) input_error(origin_, ": tensor ", name, " is missing");
    const at::Tensor& tensor = found->second;
    if (tensor.sizes() != target.sizes() || tensor.scalar_type() != target.scalar_type()) {
      input_error(origin_, ": tensor ", name, " is ", tensor.scalar_type(), " ", tensor.sizes(), ", expected ",
                  target.scalar_type(), " ", target.sizes());
    }
    target.copy_(tensor);
    stored_.erase(found);
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

checkpoint::TrainState capture_state(int64_t step, const AdamW& optimizer, const std::vector<Parameter>& buffers,
                                     const RunRecord& record) {
  const at::NoGradGuard no_grad;
  checkpoint::TrainState state;
  state.info = {{"step", step}, {"recipe", record.recipe}, {"base", record.base}};
  Json updates = Json::object();
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Parameter& parameter = optimizer.parameters()[i];
    state.tensors.push_back({kParam + parameter.name, host_copy(parameter.value), {}});
    state.tensors.push_back({kExpAvg + parameter.name, host_copy(optimizer.states()[i].exp_avg), {}});
    state.tensors.push_back({kExpAvgSq + parameter.name, host_copy(optimizer.states()[i].exp_avg_sq), {}});
    updates[parameter.name] = optimizer.states()[i].updates;
  }
  state.info["updates"] = std::move(updates);
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
    if (!updates.contains(parameter.name)) input_error(origin, ": no update count for ", parameter.name);
    optimizer.states()[i].updates = updates.at(parameter.name).get<int64_t>();
  }
  for (const Parameter& buffer : buffers) stored.restore(kBuffer + buffer.name, buffer.value);
  stored.expect_empty();
  for (const std::string& change : changes) log_info("resuming with another ", change);
  return state.info.at("step").get<int64_t>();
}

}  // namespace asterism::train
