#include "asterism/train/parameters.h"

#include <set>

#include "asterism/core/error.h"
#include "asterism/model/lora.h"

namespace asterism::train {

namespace {

using model::TensorRole;
using model::TensorSpec;

bool decays(const std::string& name, const at::Tensor& value) {
  return value.dim() >= 2 && !name.ends_with("position_bias");
}

Parameter make_parameter(const std::string& name, at::Tensor& slot) {
  if (slot.scalar_type() != at::kDouble) slot = slot.to(at::kFloat);
  // A checkpoint's tensor may be a view of a mapped file: a master owns its memory.
  slot = slot.detach().clone(at::MemoryFormat::Contiguous).requires_grad_(true);
  return {name, slot, decays(name, slot)};
}

// Packed matrices that are to be trained become plain fp32.
template <typename IsChosen>
void decode_packed(model::Model& model, const IsChosen& is_chosen) {
  model::for_each_projection(model.config, model.weights, [&](const TensorSpec& spec, model::Projection& projection) {
    if (projection.weight.packed && is_chosen(spec)) projection.weight = projection.weight.to(at::kFloat);
  });
}

}  // namespace

bool is_buffer(const TensorSpec& spec) {
  return spec.role == TensorRole::kTable || spec.role == TensorRole::kRouterBias;
}

bool is_trained(const TensorSpec& spec, const TrainedParts& parts) {
  if (is_buffer(spec)) return false;
  // Without its own loss an indexer gets no gradient, and weight decay would shrink it silently.
  if (spec.name.find(".indexer.") != std::string::npos) return parts.indexer;
  if (spec.name.rfind("mtp.", 0) == 0) return parts.mtp;
  return true;
}

std::vector<Parameter> full_parameters(model::Model& model, const TrainedParts& parts) {
  std::vector<Parameter> parameters;
  decode_packed(model, [&](const TensorSpec& spec) { return is_trained(spec, parts); });
  model::for_each_tensor(model.config, model.weights, [&](const TensorSpec& spec, at::Tensor& slot) {
    if (is_trained(spec, parts)) {
      parameters.push_back(make_parameter(spec.name, slot));
    } else if (slot.defined()) {
      slot = slot.detach();
    }
  });
  return parameters;
}

std::vector<Parameter> full_buffers(model::Model& model) {
  std::vector<Parameter> buffers;
  model::for_each_tensor(model.config, model.weights, [&](const TensorSpec& spec, at::Tensor& slot) {
    if (!is_buffer(spec)) return;
    slot = slot.detach().clone(at::MemoryFormat::Contiguous);
    buffers.push_back({spec.name, slot, false});
  });
  return buffers;
}

std::vector<Parameter> lora_parameters(model::Model& model, const std::vector<std::string>& modules_to_save,
                                       const TrainedParts& parts) {
  std::set<std::string> saved;
  for (const TensorSpec& spec : model::match_modules(model.config, modules_to_save)) {
    if (is_buffer(spec)) continue;
    if (!is_trained(spec, parts)) {
      input_error("lora.modules_to_save: ", spec.name, " would get no gradient: no loss trains it; leave it out",
                  spec.name.rfind("mtp.", 0) == 0 ? " or set model.mtp_weight" : "");
    }
    saved.insert(spec.name);
  }
  decode_packed(model, [&](const TensorSpec& spec) { return saved.contains(spec.name); });
  std::vector<Parameter> parameters;
  model::for_each_projection(model.config, model.weights, [&](const TensorSpec& spec, model::Projection& projection) {
    if (!projection.lora) return;
    if (saved.contains(spec.name)) {
      input_error("lora: ", spec.name, " is selected by targets and by modules_to_save; leave it out of one of them");
    }
    const std::string path = model::projection_path(spec.name);
    parameters.push_back(make_parameter(path + ".lora_A.weight", projection.lora->a_RK));
    parameters.push_back(make_parameter(path + ".lora_B.weight", projection.lora->b_NR));
  });
  model::for_each_tensor(model.config, model.weights, [&](const TensorSpec& spec, at::Tensor& slot) {
    if (saved.contains(spec.name)) {
      parameters.push_back(make_parameter(spec.name, slot));
    } else if (slot.defined()) {
      slot = slot.detach();
    }
  });
  return parameters;
}

model::Weights with_values(const model::Model& model, const std::map<std::string, at::Tensor>& values) {
  model::Weights weights = model.weights;
  const auto replace = [&](const std::string& name, at::Tensor& slot) {
    const auto found = values.find(name);
    if (found != values.end()) slot = found->second;
  };
  model::for_each_projection(model.config, weights, [&](const TensorSpec& spec, model::Projection& projection) {
    if (!projection.lora) return;
    const std::string path = model::projection_path(spec.name);
    replace(path + ".lora_A.weight", projection.lora->a_RK);
    replace(path + ".lora_B.weight", projection.lora->b_NR);
  });
  model::for_each_tensor(model.config, weights,
                         [&](const TensorSpec& spec, at::Tensor& slot) { replace(spec.name, slot); });
  return weights;
}

int64_t count_elements(const std::vector<Parameter>& parameters) {
  int64_t count = 0;
  for (const Parameter& parameter : parameters) count += parameter.value.numel();
  return count;
}

}  // namespace asterism::train
