#include "asterism/checkpoint/peft.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "asterism/checkpoint/names.h"
#include "asterism/checkpoint/problem_list.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using model::TensorSpec;

namespace {

constexpr std::string_view kRoot = "base_model.model.";
constexpr std::string_view kEndA = ".lora_A.weight", kEndB = ".lora_B.weight";
constexpr std::string_view kExperts = ".mlp.experts", kGateUp = ".gate_up_proj", kDown = ".down_proj";
constexpr std::string_view kInner = ".base_layer", kWeight = ".weight";

const char* const kNoMatrix = "tensors that match no matrix of the model";
const char* const kNoPartner = "tensors without their partner";
const char* const kPairShape = "tensors of the wrong shape";
const char* const kPairDtype = "tensors that are not floating point";

std::string_view without_end(std::string_view name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

std::map<std::string, TensorSpec> projection_specs(const model::Config& config) {
  std::map<std::string, TensorSpec> specs;
  model::Weights weights;
  model::for_each_projection(config, weights,
                             [&](const TensorSpec& spec, model::Projection&) { specs[spec.name] = spec; });
  return specs;
}

/// Binds the tensors of an adapter to the matrices of a model.
class AdapterBinder {
 public:
  AdapterBinder(const Source& source, const AdapterConfig& adapter, const model::Config& config)
      : source_(source), adapter_(adapter), specs_(projection_specs(config)) {}

  std::map<std::string, ops::LoraPair> read() {
    for (const std::string& name : source_.names()) place(name);
    std::map<std::string, ops::LoraPair> pairs;
    for (const auto& [projection, names] : found_) {
      const model::LoraShapes shapes = model::lora_shapes(specs_.at(projection), adapter_.lora.rank);
      if (names.a.empty() || names.b.empty()) {
        problems_.add(kNoPartner, names.a + names.b);
        continue;
      }
      check(names.a, shapes.a);
      check(names.b, shapes.b);
      pairs[projection] = {.a_RK = load(names.a), .b_NR = load(names.b), .scale = adapter_.lora.scale()};
    }
    if (found_.empty()) problems_.add("adapters without tensors", "adapter_model.safetensors");
    problems_.throw_if_any(source_.folder().string() + ": the adapter does not fit the model",
                           "check that the adapter was trained on this model and saved by PEFT 0.21 or later");
    return pairs;
  }

 private:
  struct PairNames {
    std::string a, b;
  };

  void place(const std::string& name) {
    const bool is_a = name.ends_with(kEndA), is_b = name.ends_with(kEndB);
    std::optional<std::string> projection;
    if ((is_a || is_b) && name.starts_with(kRoot)) {
      const std::string_view path = without_end(name, is_a ? kEndA : kEndB).substr(kRoot.size());
      projection = projection_of(std::string(path));
    }
    if (!projection || !specs_.contains(*projection)) {
      problems_.add(kNoMatrix, name);
      return;
    }
    PairNames& names = found_[*projection];
    (is_a ? names.a : names.b) = name;
  }

  /// The matrix that a module path of the adapter stands for; nullopt when it cannot be told.
  std::optional<std::string> projection_of(const std::string& path) const {
    if (path.ends_with(std::string(kExperts) + std::string(kInner))) {
      return std::string(without_end(path, kInner)) + std::string(kGateUp);
    }
    if (!path.ends_with(kExperts)) return path + std::string(kWeight);
    const std::string gate_up = path + std::string(kGateUp), down = path + std::string(kDown);
    const std::string inner = std::string(kRoot) + path + std::string(kInner);
    // The inner wrapper is there exactly when both parameters are adapted, and then this one is the outer.
    if (source_.contains(inner + std::string(kEndA)) || source_.contains(inner + std::string(kEndB))) return down;
    const bool targets_gate_up = adapter_.targets_parameter(gate_up), targets_down = adapter_.targets_parameter(down);
    if (targets_gate_up == targets_down) return std::nullopt;
    return targets_gate_up ? gate_up : down;
  }

  void check(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorInfo& info = source_.info(name);
    if (!c10::isFloatingType(info.dtype)) problems_.add(kPairDtype, name + " " + safetensors_dtype_name(info.dtype));
    if (info.shape == shape) return;
    problems_.add(kPairShape, text(name, ": expected ", at::IntArrayRef(shape), " with r = ", adapter_.lora.rank,
                                   ", found ", at::IntArrayRef(info.shape)));
  }

  at::Tensor load(const std::string& name) const {
    return source_.tensor(name).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }

  const Source& source_;
  const AdapterConfig& adapter_;
  const std::map<std::string, TensorSpec> specs_;
  std::map<std::string, PairNames> found_;
  ProblemList problems_;
};

/// The blocks that have a certain matrix, and those among them whose matrix is adapted.
struct LeafBlocks {
  std::vector<BlockName> all, adapted;
};

using Leaves = std::map<std::string, LeafBlocks>;

// \. and, unless all layers are meant, the numbers of the layers: the expression must match the adapted modules only.
std::string module_pattern(const std::string& leaf, const LeafBlocks& blocks, bool mtp) {
  std::string numbers;
  const auto of_kind = [&](const BlockName& block) { return block.mtp == mtp; };
  for (const BlockName& block : blocks.adapted) {
    if (of_kind(block)) numbers += (numbers.empty() ? "" : "|") + std::to_string(block.number);
  }
  if (numbers.empty()) return "";
  const bool every = std::count_if(blocks.all.begin(), blocks.all.end(), of_kind) ==
                     std::count_if(blocks.adapted.begin(), blocks.adapted.end(), of_kind);
  std::string pattern = mtp ? "mtp\\." : "model\\.layers\\.";
  pattern += (every ? "\\d+" : "(" + numbers + ")") + "\\.";
  for (const char c : without_end(leaf, kWeight)) pattern += c == '.' ? "\\." : std::string(1, c);
  return pattern;
}

void derive_targets(const Leaves& leaves, AdapterConfig& adapter) {
  std::vector<std::string> patterns;
  adapter.target_parameters.clear();
  for (const auto& [leaf, blocks] : leaves) {
    if (!model::adapted_as_parameter(model::projection_path(blocks.all.front().canonical_prefix() + leaf))) {
      for (const bool mtp : {false, true}) {
        const std::string pattern = module_pattern(leaf, blocks, mtp);
        if (!pattern.empty()) patterns.push_back(pattern);
      }
    } else if (blocks.adapted.size() == blocks.all.size()) {
      adapter.target_parameters.push_back(leaf);
    } else {
      for (const BlockName& block : blocks.adapted) {
        adapter.target_parameters.push_back(block.canonical_prefix() + leaf);
      }
    }
  }
  adapter.target_modules.clear();
  for (const std::string& pattern : patterns) {
    adapter.target_modules += (adapter.target_modules.empty() ? "(" : "|") + pattern;
  }
  if (!patterns.empty()) adapter.target_modules += ")";
}

using Pairs = std::map<std::string, ops::LoraPair>;

/// All pairs of a model by the name of their matrix; `names` gets the names of all matrices.
Pairs collect_pairs(const model::Config& config, const model::Weights& weights, std::vector<std::string>* names) {
  model::Weights handles = weights;  // the visitor takes slots that it may change; handles share the memory
  Pairs pairs;
  model::for_each_projection(config, handles, [&](const TensorSpec& spec, model::Projection& projection) {
    if (names != nullptr) names->push_back(spec.name);
    if (projection.lora) pairs[spec.name] = *projection.lora;
  });
  return pairs;
}

/// The module path under which PEFT saves the pair of a matrix: of two parameters of one module the first is wrapped
/// twice, and the second names the outer wrapper.
std::string stored_path(const std::string& matrix, const Pairs& pairs) {
  if (!is_packed_experts(matrix)) return std::string(kRoot) + model::projection_path(matrix);
  const bool gate_up = matrix.ends_with(kGateUp);
  const std::string experts(without_end(matrix, gate_up ? kGateUp : kDown));
  const bool inner = gate_up && pairs.contains(experts + std::string(kDown));
  return std::string(kRoot) + experts + std::string(inner ? kInner : "");
}

// One r and one lora_alpha stand for all pairs in the file.
void check_pairs(const model::Config& config, const Pairs& pairs, const model::LoraConfig& lora) {
  TORCH_CHECK(!pairs.empty(), "[adapter] expected at least one LoRA pair, got none");
  for (const auto& [name, spec] : projection_specs(config)) {
    const auto found = pairs.find(name);
    if (found == pairs.end()) continue;
    const ops::LoraPair& pair = found->second;
    const model::LoraShapes shapes = model::lora_shapes(spec, lora.rank);
    TORCH_CHECK(pair.a_RK.sizes() == at::IntArrayRef(shapes.a) && pair.b_NR.sizes() == at::IntArrayRef(shapes.b),
                "[adapter] the pair of ", name, " has shapes ", shapes.a, " and ", shapes.b, " at rank ", lora.rank,
                ", got ", pair.a_RK.sizes(), " and ", pair.b_NR.sizes());
    TORCH_CHECK(pair.scale == lora.scale(), "[adapter] the scale of ", name, " is ", lora.scale(), ", got ",
                pair.scale);
  }
}

}  // namespace

Adapter read_adapter(const fs::path& folder, const model::Config& config) {
  const at::NoGradGuard no_grad;
  Adapter adapter{.config = read_adapter_config(folder / "adapter_config.json"), .pairs = {}};
  const Source source = Source::open(folder, "adapter_model");
  adapter.pairs = AdapterBinder(source, adapter.config, config).read();
  return adapter;
}

LoadedAdapter load_adapter(const fs::path& folder, const model::Config& config, model::Weights& weights) {
  const at::NoGradGuard no_grad;
  const Adapter adapter = read_adapter(folder, config);
  LoadedAdapter loaded{.lora = adapter.config.lora, .paths = {}};
  model::for_each_projection(config, weights, [&](const TensorSpec& spec, model::Projection& projection) {
    const auto found = adapter.pairs.find(spec.name);
    if (found == adapter.pairs.end()) return;
    const at::ScalarType type = projection.weight.sum_type();
    const ops::LoraPair& pair = found->second;
    projection.lora = ops::LoraPair{.a_RK = pair.a_RK.to(type), .b_NR = pair.b_NR.to(type), .scale = pair.scale};
    loaded.paths.push_back(model::projection_path(spec.name));
  });
  loaded.lora.targets = loaded.paths;
  return loaded;
}

void write_adapter(const fs::path& folder, const model::Config& config, const model::Weights& weights,
                   const model::LoraConfig& lora, const std::string& base_model, bool replace) {
  std::vector<std::string> matrices;  // keeps the text alive that the leaves point into
  const Pairs pairs = collect_pairs(config, weights, &matrices);
  check_pairs(config, pairs, lora);
  Leaves leaves;
  for (const std::string& name : matrices) {
    const auto block = split_block(name);
    TORCH_CHECK(block, "[adapter] expected matrices of layers and MTP blocks, got ", name);
    LeafBlocks& blocks = leaves[std::string(block->leaf)];
    blocks.all.push_back(*block);
    if (pairs.contains(name)) blocks.adapted.push_back(*block);
  }
  AdapterConfig written{.lora = lora};
  if (!base_model.empty()) written.base_model = base_model;
  derive_targets(leaves, written);

  std::vector<NamedTensor> tensors;
  for (const auto& [name, pair] : pairs) {
    const std::string path = stored_path(name, pairs);
    tensors.push_back({path + std::string(kEndA), pair.a_RK});
    tensors.push_back({path + std::string(kEndB), pair.b_NR});
  }
  AtomicFolder target(folder, replace);
  write_text_atomically(target.staging() / "adapter_config.json", adapter_config_text(written));
  write_safetensors(target.staging() / "adapter_model.safetensors", tensors);
  target.publish();
}

std::map<std::string, std::string> adapter_tensor_names(const model::Config& config, const model::Weights& weights) {
  const Pairs pairs = collect_pairs(config, weights, nullptr);
  std::map<std::string, std::string> names;
  for (const auto& [name, pair] : pairs) {
    for (const std::string_view end : {kEndA, kEndB}) {
      names[model::projection_path(name) + std::string(end)] = stored_path(name, pairs) + std::string(end);
    }
  }
  return names;
}

}  // namespace asterism::checkpoint
