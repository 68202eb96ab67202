#include "asterism/model/lora.h"

#include <ATen/Parallel.h>

#include <cmath>
#include <set>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/ops/matmul.h"

namespace asterism::model {

namespace {

bool ends_with(const std::string& value, const std::string& ending) {
  return value.size() >= ending.size() && value.compare(value.size() - ending.size(), ending.size(), ending) == 0;
}

// The part of a layer's path behind "model.layers.3.", or "" for other paths.
std::string leaf_of_layer(const std::string& path) {
  const std::string prefix = "model.layers.";
  if (path.compare(0, prefix.size(), prefix) != 0) return "";
  return path.substr(path.find('.', prefix.size()) + 1);
}

bool in_group(const std::string& group, const std::string& path) {
  const std::string leaf = leaf_of_layer(path);
  if (group == "shared_experts") return leaf.rfind("mlp.shared_experts.", 0) == 0;
  if (group == "experts") return leaf.rfind("mlp.experts.", 0) == 0;
  for (const char* name : {"q_a_proj", "q_b_proj", "kv_proj", "o_a_proj", "o_b_proj"}) {
    if (leaf == std::string("self_attn.") + name) return true;
  }
  return false;
}

// Glob with * for any text, also across dots; linear in practice, patterns are short.
bool matches(const char* pattern, const char* value) {
  if (*pattern == '\0') return *value == '\0';
  if (*pattern != '*') return *value == *pattern && matches(pattern + 1, value + 1);
  for (;; ++value) {
    if (matches(pattern + 1, value)) return true;
    if (*value == '\0') return false;
  }
}

bool selects(const std::string& target, const std::string& path) {
  if (target == "attention" || target == "shared_experts" || target == "experts") return in_group(target, path);
  const std::string pattern = projection_path(target);
  if (matches(pattern.c_str(), path.c_str())) return true;
  const bool absolute = pattern.rfind("model.", 0) == 0 || pattern.rfind("mtp.", 0) == 0 || pattern.rfind("*", 0) == 0;
  const std::string leaf = leaf_of_layer(path);
  return !absolute && !leaf.empty() && matches(pattern.c_str(), leaf.c_str());
}

// Elements begin, begin + 1, .. of a fresh A.
void initial_lora_a(const std::string& path, int64_t columns, uint64_t seed, int64_t begin, const at::Tensor& out) {
  const RandomStream stream(seed, "lora_a:" + path);
  const double bound = 1.0 / std::sqrt(static_cast<double>(columns));
  float* values = out.mutable_data_ptr<float>();
  at::parallel_for(0, out.numel(), 4096, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      values[i] = static_cast<float>(-bound + (bound + bound) * stream.uniform(static_cast<uint64_t>(begin + i)));
    }
  });
}

}  // namespace

double LoraConfig::scale() const {
  return rslora ? alpha / std::sqrt(static_cast<double>(rank)) : alpha / static_cast<double>(rank);
}

std::string projection_path(const std::string& tensor_name) {
  const std::string ending = ".weight";
  return ends_with(tensor_name, ending) ? tensor_name.substr(0, tensor_name.size() - ending.size()) : tensor_name;
}

bool adapted_as_parameter(const std::string& path) {
  return ends_with(path, ".mlp.experts.gate_up_proj") || ends_with(path, ".mlp.experts.down_proj") ||
         ends_with(path, ".self_attn.o_a_proj") || ends_with(path, ".mlp.gate");
}

std::vector<std::string> match_targets(const Config& config, const std::vector<std::string>& targets) {
  std::vector<std::string> paths;
  Weights scratch;
  for_each_projection(config, scratch,
                      [&](const TensorSpec& spec, Projection&) { paths.push_back(projection_path(spec.name)); });
  std::vector<bool> chosen(paths.size(), false);
  for (const std::string& target : targets) {
    bool found = false;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (!selects(target, paths[i])) continue;
      chosen[i] = found = true;
    }
    if (found) continue;
    std::vector<std::string> known = {"attention", "shared_experts", "experts"};
    for (const std::string& path : paths) {
      known.push_back(path);
      if (!leaf_of_layer(path).empty()) known.push_back(leaf_of_layer(path));
    }
    const std::string near = nearest_name(target, known);
    input_error("lora.targets: \"", target, "\" matches no matrix of the model",
                near.empty() ? std::string() : text("; did you mean \"", near, "\"?"),
                " Groups: attention, shared_experts, experts; or a path such as self_attn.q_b_proj, * allowed");
  }
  std::vector<std::string> selected;
  for (size_t i = 0; i < paths.size(); ++i) {
    if (chosen[i]) selected.push_back(paths[i]);
  }
  return selected;
}

std::vector<TensorSpec> match_modules(const Config& config, const std::vector<std::string>& modules) {
  const std::vector<TensorSpec> specs = tensor_specs(config);
  std::vector<bool> chosen(specs.size(), false);
  std::set<std::string> paths;
  for (const TensorSpec& spec : specs) {
    for (size_t dot = spec.name.find('.'); dot != std::string::npos; dot = spec.name.find('.', dot + 1)) {
      paths.insert(spec.name.substr(0, dot));
    }
  }
  for (const std::string& module : modules) {
    std::vector<std::string> matched;
    for (const std::string& path : paths) {
      const bool is_mtp = path.rfind("mtp.", 0) == 0 && module.rfind("mtp.", 0) != 0;
      if (!is_mtp && (path == module || ends_with(path, "." + module))) matched.push_back(path + ".");
    }
    if (matched.empty()) {
      const std::string near = nearest_name(module, paths);
      input_error("modules_to_save: \"", module, "\" is no module of the model",
                  near.empty() ? std::string() : text("; did you mean \"", near, "\"?"),
                  " Expected the path of a module or its end, such as lm_head or mlp.gate");
    }
    for (size_t i = 0; i < specs.size(); ++i) {
      for (const std::string& path : matched) chosen[i] = chosen[i] || specs[i].name.rfind(path, 0) == 0;
    }
  }
  std::vector<TensorSpec> selected;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (chosen[i]) selected.push_back(specs[i]);
  }
  return selected;
}

LoraShapes lora_shapes(const TensorSpec& spec, int64_t rank) {
  if (spec.shape.size() == 3) {
    const int64_t experts = spec.shape[0], out = spec.shape[1], in = spec.shape[2];
    return {{experts * rank, in}, {out, rank * experts}};
  }
  return {{rank, spec.shape[1]}, {spec.shape[0], rank}};
}

FreshLora::FreshLora(const Config& config, uint64_t seed) : seed_(seed) {
  Weights none;
  for_each_projection(config, none, [&](const TensorSpec& spec, Projection&) {
    columns_[projection_path(spec.name)] = spec.shape.back();
  });
}

void FreshLora::read(const std::string& name, int64_t begin, const at::Tensor& out) {
  const std::string_view end = name.ends_with(kLoraAEnd) ? kLoraAEnd : kLoraBEnd;
  TORCH_CHECK(name.ends_with(end), "[lora] ", name, " is no matrix of a pair");
  const std::string path = name.substr(0, name.size() - end.size());
  if (end == kLoraBEnd) {
    at::Tensor(out).zero_();
  } else {
    initial_lora_a(path, columns_.at(path), seed_, begin, out);
  }
}

std::vector<std::string> attach_lora(const Config& config, Weights& weights, const LoraConfig& lora, uint64_t seed) {
  const std::vector<std::string> paths = match_targets(config, lora.targets);
  size_t next = 0;
  for_each_projection(config, weights, [&](const TensorSpec& spec, Projection& projection) {
    const std::string path = projection_path(spec.name);
    if (next == paths.size() || paths[next] != path) return;
    ++next;
    const auto type = projection.weight.sum_type();
    const LoraShapes shapes = lora_shapes(spec, lora.rank);
    if (is_outline(projection.weight)) {
      projection.lora = ops::LoraPair{outline(shapes.a, type), outline(shapes.b, type), lora.scale()};
      return;
    }
    const at::Tensor a = at::empty(shapes.a, at::kFloat);
    initial_lora_a(path, shapes.a.back(), seed, 0, a.view({-1}));
    projection.lora = ops::LoraPair{a.to(type), at::zeros(shapes.b, type), lora.scale()};
  });
  set_lora_dropout(config, weights, lora.dropout);
  return paths;
}

void set_lora_dropout(const Config& config, Weights& weights, double dropout) {
  for_each_projection(config, weights, [dropout](const TensorSpec& spec, Projection& projection) {
    if (projection.lora) projection.lora_dropout = adapted_as_parameter(projection_path(spec.name)) ? 0.0 : dropout;
  });
}

at::Tensor merged_weight(const Projection& projection) {
  const at::Tensor weight = projection.weight.to(projection.weight.sum_type());
  if (!projection.lora) return weight;
  const ops::LoraPair& lora = *projection.lora;
  if (weight.dim() == 2) return weight + ops::matmul_nn(lora.b_NR, lora.a_RK) * lora.scale;
  const int64_t num_experts = weight.size(0), rank = lora.a_RK.size(0) / num_experts;
  at::Tensor merged = weight.clone();
  for (int64_t e = 0; e < num_experts; ++e) {
    // PEFT packs A expert by expert and B with the expert as the fastest index.
    const at::Tensor b_NR = lora.b_NR.slice(1, e, std::nullopt, num_experts);
    merged[e] += ops::matmul_nn(b_NR, lora.a_RK.slice(0, e * rank, (e + 1) * rank)) * lora.scale;
  }
  return merged;
}

}  // namespace asterism::model
