#include "asterism/checkpoint/peft.h"

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "asterism/checkpoint/peft_names.h"
#include "asterism/checkpoint/peft_targets.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using model::TensorSpec;

namespace {

/// All pairs of a model; `matrices` gets what may carry one.
Pairs collect_pairs(const model::Config& config, const model::Weights& weights, std::vector<TensorSpec>& matrices) {
  model::Weights handles = weights;  // the visitor takes slots that it may change; handles share the memory
  Pairs pairs;
  model::for_each_projection(config, handles, [&](const TensorSpec& spec, model::Projection& projection) {
    matrices.push_back(spec);
    if (projection.lora) pairs[spec.name] = *projection.lora;
  });
  return pairs;
}

/// A tensor of the file that may be an outline, whose values have the name `slot` in the model.
NamedTensor named(std::string name, const at::Tensor& tensor, const std::string& slot, model::SliceReader* values) {
  NamedTensor result{.name = std::move(name), .tensor = tensor};
  if (!tensor.is_meta()) return result;
  TORCH_CHECK(values != nullptr, "[adapter] ", slot, " has no values");
  result.read = [values, slot](int64_t begin, const at::Tensor& out) { values->read(slot, begin, out); };
  return result;
}

void add_pair(const std::string& path, const ops::LoraPair& pair, std::vector<NamedTensor>& tensors) {
  tensors.push_back({path + std::string(kLoraA), pair.a_RK});
  tensors.push_back({path + std::string(kLoraB), pair.b_NR});
}

/// A pair for each matrix of each expert: rows e*r .. of A, every E-th column of B, the rows of the matrix.
void add_parts(const TensorSpec& spec, const ops::LoraPair& pair, std::vector<NamedTensor>& tensors) {
  const std::vector<ExpertPart::Matrix> matrices = packed_matrices(spec.name);
  const int64_t num_experts = spec.shape[0], rank = pair.a_RK.size(0) / num_experts;
  const int64_t rows = spec.shape[1] / static_cast<int64_t>(matrices.size());
  for (int64_t e = 0; e < num_experts; ++e) {
    const at::Tensor b_NR = pair.b_NR.slice(1, e, std::nullopt, num_experts);
    for (size_t m = 0; m < matrices.size(); ++m) {
      const ops::LoraPair part{.a_RK = pair.a_RK.narrow(0, e * rank, rank),
                               .b_NR = b_NR.narrow(0, static_cast<int64_t>(m) * rows, rows),
                               .scale = pair.scale};
      add_pair(adapter_path_of_part({spec.name, ExpertPart{e, matrices[m]}}), part, tensors);
    }
  }
}

/// The tensors of modules_to_save, as the model holds them.
void add_saved(const model::Config& config, const model::Weights& weights, const std::vector<std::string>& modules,
               model::SliceReader* values, std::vector<NamedTensor>& tensors) {
  std::set<std::string> wanted;
  for (const TensorSpec& spec : model::match_modules(config, modules)) wanted.insert(spec.name);
  model::Weights handles = weights;
  model::for_each_tensor(config, handles, [&](const TensorSpec& spec, at::Tensor& tensor) {
    if (!wanted.contains(spec.name)) return;
    tensors.push_back(named(std::string(kAdapterRoot) + spec.name, tensor, spec.name, values));
  });
}

}  // namespace

Adapter read_adapter(const fs::path& folder, const model::Config& config) {
  const at::NoGradGuard no_grad;
  Adapter adapter{.config = read_adapter_config(folder / "adapter_config.json"), .tensors = {}};
  const Source source = Source::open(folder, "adapter_model");
  adapter.tensors = bind_adapter(source, adapter.config, config);
  return adapter;
}

LoadedAdapter load_adapter(const fs::path& folder, const model::Config& config, model::Weights& weights) {
  const at::NoGradGuard no_grad;
  const Adapter adapter = read_adapter(folder, config);
  const auto& [pairs, saved] = adapter.tensors;
  // A saved matrix takes the place of a packed one.
  model::for_each_projection(config, weights, [&kept = saved](const TensorSpec& spec, model::Projection& projection) {
    if (kept.contains(spec.name)) projection.weight.packed.reset();
  });
  model::for_each_tensor(config, weights, [&, &kept = saved](const TensorSpec& spec, at::Tensor& slot) {
    const auto found = kept.find(spec.name);
    if (found == kept.end()) return;
    const bool wide = slot.defined() && slot.scalar_type() == at::kDouble;
    slot = wide ? found->second.to(at::kDouble) : found->second;
  });
  LoadedAdapter loaded{.lora = adapter.config.lora, .paths = {}};
  model::for_each_projection(
      config, weights, [&, &kept = pairs](const TensorSpec& spec, model::Projection& projection) {
        const auto found = kept.find(spec.name);
        if (found == kept.end()) return;
        const at::ScalarType type = projection.weight.sum_type();
        const ops::LoraPair& pair = found->second;
        projection.lora = ops::LoraPair{.a_RK = pair.a_RK.to(type), .b_NR = pair.b_NR.to(type), .scale = pair.scale};
        loaded.paths.push_back(model::projection_path(spec.name));
      });
  loaded.lora.targets = loaded.paths;
  return loaded;
}

void write_adapter(const fs::path& folder, const model::Config& config, const model::Weights& weights,
                   const model::LoraConfig& lora, const std::string& base_model, bool replace, AdapterLayout layout,
                   model::SliceReader* values) {
  std::vector<TensorSpec> matrices;
  const Pairs pairs = collect_pairs(config, weights, matrices);
  std::vector<NamedTensor> tensors;
  for (const TensorSpec& spec : matrices) {
    const auto found = pairs.find(spec.name);
    if (found == pairs.end()) continue;
    if (layout == AdapterLayout::kPerExpert && is_packed_experts(spec.name)) {
      add_parts(spec, found->second, tensors);
    } else {
      const std::string path = adapter_path(spec.name, pairs), slot = model::projection_path(spec.name);
      const ops::LoraPair& pair = found->second;
      tensors.push_back(named(path + std::string(kLoraA), pair.a_RK, slot + model::kLoraAEnd, values));
      tensors.push_back(named(path + std::string(kLoraB), pair.b_NR, slot + model::kLoraBEnd, values));
    }
  }
  add_saved(config, weights, lora.modules_to_save, values, tensors);
  TORCH_CHECK(!tensors.empty(), "[adapter] expected at least one LoRA pair, got none");
  AdapterConfig written{.lora = lora};
  if (!base_model.empty()) written.base_model = base_model;
  derive_targets(matrices, pairs, layout, written);

  AtomicFolder target(folder, replace);
  write_text_atomically(target.staging() / "adapter_config.json", adapter_config_text(written));
  write_safetensors(target.staging() / "adapter_model.safetensors", tensors);
  target.publish();
}

std::map<std::string, std::string> adapter_tensor_names(const model::Config& config, const model::Weights& weights) {
  std::vector<TensorSpec> matrices;
  const Pairs pairs = collect_pairs(config, weights, matrices);
  std::map<std::string, std::string> names;
  for (const auto& [name, pair] : pairs) {
    for (const std::string_view end : {kLoraA, kLoraB}) {
      names[model::projection_path(name) + std::string(end)] = adapter_path(name, pairs) + std::string(end);
    }
  }
  return names;
}

}  // namespace asterism::checkpoint
