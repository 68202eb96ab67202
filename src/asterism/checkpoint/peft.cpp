#include "asterism/checkpoint/peft.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
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
const char* const kShape = "tensors of the wrong shape";
const char* const kDtype = "tensors that are not floating point";

// What PEFT cannot wrap as a linear: o_a_proj is grouped, the router gate and the experts are bare parameters.
constexpr std::array<std::string_view, 4> kParameterLeaves = {"self_attn.o_a_proj.weight", "mlp.gate.weight",
                                                              "mlp.experts.gate_up_proj", "mlp.experts.down_proj"};

bool is_parameter_leaf(std::string_view leaf) {
  return std::find(kParameterLeaves.begin(), kParameterLeaves.end(), leaf) != kParameterLeaves.end();
}

std::string_view without_end(std::string_view name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

/// Shapes of A and B: [r, in] and [out, r]; for packed experts [E, out, in], [E * r, in] and [out, r * E].
struct PairShape {
  std::vector<int64_t> a, b;
};

PairShape pair_shape(const TensorSpec& spec, int64_t rank) {
  const size_t packed = spec.shape.size() == 3 ? 1 : 0;
  const int64_t rows = packed == 1 ? spec.shape[0] * rank : rank;
  return {{rows, spec.shape[packed + 1]}, {spec.shape[packed], rows}};
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
      const PairShape shape = pair_shape(specs_.at(projection), adapter_.rank);
      if (names.a.empty() || names.b.empty()) {
        problems_.add(kNoPartner, names.a + names.b);
        continue;
      }
      check(names.a, shape.a);
      check(names.b, shape.b);
      pairs[projection] = {.a_RK = load(names.a), .b_NR = load(names.b), .scale = adapter_.scale()};
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
    if (!c10::isFloatingType(info.dtype)) problems_.add(kDtype, name + " " + safetensors_dtype_name(info.dtype));
    if (info.shape == shape) return;
    problems_.add(kShape, text(name, ": expected ", at::IntArrayRef(shape), " with r = ", adapter_.rank, ", found ",
                               at::IntArrayRef(info.shape)));
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
    if (!is_parameter_leaf(leaf)) {
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

/// The module path under which PEFT saves the pair of a matrix. `both`: gate_up_proj and down_proj are adapted.
std::string module_path(const std::string& projection, bool both) {
  if (!is_packed_experts(projection)) return std::string(without_end(projection, kWeight));
  const bool gate_up = projection.ends_with(kGateUp);
  const std::string experts(without_end(projection, gate_up ? kGateUp : kDown));
  return experts + (gate_up && both ? std::string(kInner) : "");
}

void check_pair(const TensorSpec& spec, const ops::LoraPair& pair, const AdapterConfig& adapter) {
  const PairShape shape = pair_shape(spec, adapter.rank);
  TORCH_CHECK(pair.a_RK.sizes() == at::IntArrayRef(shape.a) && pair.b_NR.sizes() == at::IntArrayRef(shape.b),
              "[adapter] the pair of ", spec.name, " has shapes ", shape.a, " and ", shape.b, " at rank ", adapter.rank,
              ", got ", pair.a_RK.sizes(), " and ", pair.b_NR.sizes());
  // One r and one lora_alpha stand for all pairs in the file.
  TORCH_CHECK(pair.scale == adapter.scale(), "[adapter] the scale of ", spec.name, " is ", adapter.scale(), ", got ",
              pair.scale);
}

}  // namespace

Adapter read_adapter(const fs::path& folder, const model::Config& config) {
  const at::NoGradGuard no_grad;
  Adapter adapter{.config = read_adapter_config(folder / "adapter_config.json"), .pairs = {}};
  const Source source = Source::open(folder, "adapter_model");
  adapter.pairs = AdapterBinder(source, adapter.config, config).read();
  return adapter;
}

void attach(const Adapter& adapter, const model::Config& config, model::Weights& weights) {
  size_t attached = 0;
  model::for_each_projection(config, weights, [&](const TensorSpec& spec, model::Projection& projection) {
    const auto pair = adapter.pairs.find(spec.name);
    if (pair == adapter.pairs.end()) return;
    projection.lora = pair->second;
    ++attached;
  });
  TORCH_CHECK(attached == adapter.pairs.size(), "[adapter] every pair belongs to a matrix of the model, got ",
              adapter.pairs.size(), " pairs and ", attached, " matrices");
}

void write_adapter(const fs::path& folder, const AdapterConfig& adapter, const model::Config& config,
                   const model::Weights& weights, bool replace) {
  model::Weights handles = weights;  // the visitor takes slots that it may change; handles share the memory
  std::map<std::string, ops::LoraPair> pairs;
  std::vector<std::string> names;  // keeps the text alive that the leaves point into
  model::for_each_projection(config, handles, [&](const TensorSpec& spec, model::Projection& projection) {
    names.push_back(spec.name);
    if (!projection.lora) return;
    check_pair(spec, *projection.lora, adapter);
    pairs[spec.name] = *projection.lora;
  });
  TORCH_CHECK(!pairs.empty(), "[adapter] expected at least one LoRA pair, got none");

  Leaves leaves;
  for (const std::string& name : names) {
    const auto block = split_block(name);
    TORCH_CHECK(block, "[adapter] expected matrices of layers and MTP blocks, got ", name);
    LeafBlocks& blocks = leaves[std::string(block->leaf)];
    blocks.all.push_back(*block);
    if (pairs.contains(name)) blocks.adapted.push_back(*block);
  }
  AdapterConfig written = adapter;
  derive_targets(leaves, written);

  std::vector<NamedTensor> tensors;
  for (const auto& [name, pair] : pairs) {
    const std::string sibling = split_block(name)->canonical_prefix() + "mlp.experts.down_proj";
    const std::string path = std::string(kRoot) + module_path(name, pairs.contains(sibling));
    tensors.push_back({path + std::string(kEndA), pair.a_RK});
    tensors.push_back({path + std::string(kEndB), pair.b_NR});
  }
  AtomicFolder target(folder, replace);
  write_text_atomically(target.staging() / "adapter_config.json", adapter_config_text(written));
  write_safetensors(target.staging() / "adapter_model.safetensors", tensors);
  target.publish();
}

}  // namespace asterism::checkpoint
