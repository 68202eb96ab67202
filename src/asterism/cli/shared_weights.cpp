#include "asterism/cli/shared_weights.h"

#include <filesystem>
#include <set>

#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/peft_names.h"
#include "asterism/cli/session.h"
#include "asterism/core/file.h"
#include "asterism/core/log.h"

namespace asterism::cli {

SharedWeights::SharedWeights(const train::Recipe& recipe)
    : config_(model::read_config(std::filesystem::path(recipe.model.path) / "config.json")),
      slices_(recipe.model.path, config_, read_options(recipe.model.storage)),
      fresh_(config_, recipe.seed) {
  for (const std::string& note : slices_.notes()) log_info(note);
}

model::Model SharedWeights::outlines() const {
  return {.config = config_, .weights = slices_.outlines()};
}

void SharedWeights::hold(model::Model& model, const std::string& adapter) {
  if (adapter.empty()) return;
  const std::filesystem::path file = std::filesystem::path(adapter) / "adapter_model.safetensors";
  if (path_exists(file)) adapter_ = std::make_unique<checkpoint::SlicedFile>(file);
  const auto names = checkpoint::adapter_tensor_names(model.config, model.weights);
  model::for_each_named_slot(model.config, model.weights, [&](const std::string& name, at::Tensor& slot) {
    if (slot.is_meta()) return;
    const auto pair = names.find(name);
    const std::string stored = pair != names.end() ? pair->second : std::string(checkpoint::kAdapterRoot) + name;
    if (adapter_ && adapter_->contains(stored)) {
      stored_[name] = stored;
    } else {
      held_[name] = slot;
    }
    slot = model::outline(slot.sizes(), slot.scalar_type());
  });
}

void SharedWeights::drop_trained() {
  std::set<std::string> buffers;
  for (const model::TensorSpec& spec : model::tensor_specs(config_)) {
    if (train::is_buffer(spec)) buffers.insert(spec.name);
  }
  std::erase_if(held_, [&](const auto& held) { return !buffers.contains(held.first); });
}

void SharedWeights::read(const std::string& name, int64_t begin, const at::Tensor& out) {
  const auto held = held_.find(name);
  if (held != held_.end()) return parallel::read_held(held->second, begin, out);
  const auto stored = stored_.find(name);
  if (stored != stored_.end()) return adapter_->read(stored->second, begin, out);
  const bool lora = name.ends_with(model::kLoraAEnd) || name.ends_with(model::kLoraBEnd);
  lora ? fresh_.read(name, begin, out) : slices_.read(name, begin, out);
}

void SharedWeights::load(std::vector<train::Parameter>& buffers) {
  for (train::Parameter& buffer : buffers) {
    buffer.value = at::empty(buffer.value.sizes(), buffer.value.scalar_type());
    slices_.read(buffer.name, 0, buffer.value.view({-1}));
  }
}

checkpoint::RecodingLoss SharedWeights::rounded(const parallel::MeshComms& comms) const {
  const checkpoint::RecodingLoss dense = slices_.rounded(/*experts=*/false), experts = slices_.rounded(true);
  const at::Tensor counts = at::tensor(
      {dense.values, dense.changed, dense.vanished, experts.values, experts.changed, experts.vanished}, at::kLong);
  const at::Tensor largest = at::tensor({std::max(dense.largest_relative, experts.largest_relative)}, at::kDouble);
  comms.world->all_reduce(counts, dist::Reduction::kSum, "values rounded");
  comms.world->all_reduce(largest, dist::Reduction::kMax, "largest rounding");
  const int64_t* sums = counts.const_data_ptr<int64_t>();
  const int64_t copies = comms.mesh.replicate;  // of the dense weights, all counted
  return {.values = sums[0] / copies + sums[3],
          .changed = sums[1] / copies + sums[4],
          .vanished = sums[2] / copies + sums[5],
          .largest_relative = largest.item<double>()};
}

}  // namespace asterism::cli
