#include "asterism/train/resume.h"

#include <map>

#include "asterism/core/error.h"

namespace asterism::train {

namespace {

using Json = nlohmann::ordered_json;

void check_identity(const Json& saved, const Json& wanted, const std::string& origin) {
  for (const auto& [key, value] : wanted.items()) {
    const Json found = saved.contains(key) ? saved.at(key) : Json();
    if (found == value) continue;
    input_error(origin, ": the checkpoint was written with ", key, " = ", found.dump(), ", the recipe says ",
                value.dump(),
                ". Restore the old value, or choose another name (or checkpoint.resume: never) for a new run");
  }
}

}  // namespace

Json run_identity(const Recipe& recipe, const model::Config& config) {
  Json identity;
  identity["seed"] = recipe.seed;
  identity["model.path"] = recipe.model.path;
  identity["model.layers"] = config.num_layers();
  identity["model.hidden_size"] = config.hidden_size;
  identity["model.vocab_size"] = config.vocab_size;
  identity["model.indexer"] = recipe.model.indexer == IndexerMode::kKl ? "kl" : "frozen";
  identity["model.mtp_weight"] = recipe.model.mtp_weight;
  // Which data they are is what the position in them says (data/stream_position.h): files may move.
  Json weights = Json::array();
  for (const data::DataSource& source : recipe.data.train) weights.push_back(source.weight);
  identity["weights of data.train"] = weights;
  identity["data.variant"] = recipe.data.variant;
  identity["data.thinking"] = recipe.data.thinking;
  identity["data.reasoning_effort"] = recipe.data.reasoning_effort;
  identity["data.drop_thinking"] = recipe.data.drop_thinking;
  identity["data.history"] = recipe.data.history;
  identity["data.sequence_length"] = recipe.data.sequence_length;
  identity["data.packing"] = recipe.data.packing;
  identity["data.overlong"] = recipe.data.overlong;
  identity["data.without_targets"] = recipe.data.without_targets;
  identity["data.shuffle"] = recipe.data.shuffle;
  identity["data.shuffle_buffer"] = recipe.data.shuffle_buffer;
  identity["train.batch"] = recipe.train.batch;
  identity["lora"] = recipe.lora.has_value();
  if (recipe.lora) {
    identity["lora.rank"] = recipe.lora->config.rank;
    identity["lora.alpha"] = recipe.lora->config.alpha;
    identity["lora.rslora"] = recipe.lora->config.rslora;
    identity["lora.dropout"] = recipe.lora->config.dropout;
    identity["lora.targets"] = recipe.lora->config.targets;
    identity["lora.modules_to_save"] = recipe.lora->config.modules_to_save;
  }
  return identity;
}

checkpoint::TrainState capture_state(int64_t step, const AdamW& optimizer, const Json& identity) {
  checkpoint::TrainState state;
  state.info["step"] = step;
  state.info["identity"] = identity;
  Json updates;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Parameter& parameter = optimizer.parameters()[i];
    state.tensors.push_back({"param." + parameter.name, parameter.value.detach(), {}});
    state.tensors.push_back({"exp_avg." + parameter.name, optimizer.states()[i].exp_avg, {}});
    state.tensors.push_back({"exp_avg_sq." + parameter.name, optimizer.states()[i].exp_avg_sq, {}});
    updates[parameter.name] = optimizer.states()[i].updates;
  }
  state.info["updates"] = updates;
  return state;
}

int64_t restore_state(const checkpoint::TrainState& state, AdamW& optimizer, const Json& identity,
                      const std::string& origin) {
  check_identity(state.info.value("identity", Json::object()), identity, origin);
  std::map<std::string, at::Tensor> stored;
  for (const auto& named : state.tensors) stored[named.name] = named.tensor;
  const Json updates = state.info.value("updates", Json::object());
  const at::NoGradGuard no_grad;
  const auto restore = [&](const std::string& name, const at::Tensor& target) {
    const auto found = stored.find(name);
    if (found == stored.end()) input_error(origin, ": tensor ", name, " is missing");
    if (found->second.sizes() != target.sizes() || found->second.scalar_type() != target.scalar_type()) {
      input_error(origin, ": tensor ", name, " is ", found->second.scalar_type(), " ", found->second.sizes(),
                  ", expected ", target.scalar_type(), " ", target.sizes());
    }
    target.copy_(found->second);
    stored.erase(found);
  };
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const Parameter& parameter = optimizer.parameters()[i];
    restore("param." + parameter.name, parameter.value.detach());
    restore("exp_avg." + parameter.name, optimizer.states()[i].exp_avg);
    restore("exp_avg_sq." + parameter.name, optimizer.states()[i].exp_avg_sq);
    if (!updates.contains(parameter.name)) input_error(origin, ": no update count for ", parameter.name);
    optimizer.states()[i].updates = updates.at(parameter.name).get<int64_t>();
  }
  if (!stored.empty()) {
    input_error(origin, ": ", stored.size(), " tensors that this run does not train, the first is ",
                stored.begin()->first);
  }
  return state.info.at("step").get<int64_t>();
}

}  // namespace asterism::train
