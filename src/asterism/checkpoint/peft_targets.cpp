#include "asterism/checkpoint/peft_targets.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "asterism/core/error.h"

namespace asterism::checkpoint {

using model::TensorSpec;

namespace {

constexpr std::string_view kWeight = ".weight";

/// The blocks that have a certain matrix, and those among them whose matrix is adapted.
struct LeafBlocks {
  std::vector<BlockName> all, adapted;
};

using Leaves = std::map<std::string, LeafBlocks>;

Leaves leaves_of(const std::vector<TensorSpec>& matrices, const Pairs& pairs) {
  Leaves leaves;
  for (const auto& [name, shape, role] : matrices) {
    const auto block = split_block(name);
    TORCH_CHECK(block, "[adapter] expected matrices of layers and MTP blocks, got ", name);
    LeafBlocks& blocks = leaves[std::string(block->leaf)];
    blocks.all.push_back(*block);
    if (pairs.contains(name)) blocks.adapted.push_back(*block);
  }
  return leaves;
}

std::string escaped(std::string_view path) {
  std::string expression;
  for (const char c : path) expression += c == '.' ? "\\." : std::string(1, c);
  return expression;
}

/// The expression of the modules that a matrix of a block stands for: packed experts for the linears of each expert.
std::string module_of(const std::string& leaf) {
  if (leaf == "mlp.experts.gate_up_proj") return "mlp\\.experts\\.\\d+\\.(gate|up)_proj";
  if (leaf == "mlp.experts.down_proj") return "mlp\\.experts\\.\\d+\\.down_proj";
  return escaped(std::string_view(leaf).substr(0, leaf.size() - kWeight.size()));
}

// Unless all layers are meant, the numbers of the layers: the expression must match the adapted modules only.
std::string module_pattern(const std::string& leaf, const LeafBlocks& blocks, bool mtp) {
  std::string numbers;
  const auto of_kind = [&](const BlockName& block) { return block.mtp == mtp; };
  for (const BlockName& block : blocks.adapted) {
    if (of_kind(block)) numbers += (numbers.empty() ? "" : "|") + std::to_string(block.number);
  }
  if (numbers.empty()) return "";
  const bool every = std::count_if(blocks.all.begin(), blocks.all.end(), of_kind) ==
                     std::count_if(blocks.adapted.begin(), blocks.adapted.end(), of_kind);
  return (mtp ? "mtp\\." : "model\\.layers\\.") + (every ? "\\d+" : "(" + numbers + ")") + "\\." + module_of(leaf);
}

/// The alpha that gives a scale at a rank. Rounded where that loses nothing: 5 / 3 * 3 is not quite 5.
double alpha_of(double scale, const model::LoraConfig& lora) {
  model::LoraConfig trial = lora;
  trial.alpha = 1.0;
  const double alpha = scale / trial.scale();
  trial.alpha = std::round(alpha * 1e6) / 1e6;
  return trial.scale() == scale ? trial.alpha : alpha;
}

/// The expression under which the patterns know a matrix.
std::string pattern_key(const std::string& matrix, AdapterLayout layout) {
  if (layout == AdapterLayout::kPeft || !is_packed_experts(matrix)) return escaped(pattern_path(matrix));
  const auto block = split_block(matrix);
  return escaped(block->canonical_prefix()) + module_of(std::string(block->leaf));
}

// Packed experts hold a pair for each expert, one below the other in A.
int64_t rank_of(const TensorSpec& spec, const ops::LoraPair& pair) {
  const int64_t rank = pair.a_RK.size(0) / (spec.shape.size() == 3 ? spec.shape[0] : 1);
  const model::LoraShapes shapes = model::lora_shapes(spec, rank);
  TORCH_CHECK(
      rank > 0 && pair.a_RK.sizes() == at::IntArrayRef(shapes.a) && pair.b_NR.sizes() == at::IntArrayRef(shapes.b),
      "[adapter] the pair of ", spec.name, " has shapes ", shapes.a, " and ", shapes.b, " at rank ", rank, ", got ",
      pair.a_RK.sizes(), " and ", pair.b_NR.sizes());
  return rank;
}

void derive_patterns(const std::vector<TensorSpec>& matrices, const Pairs& pairs, AdapterLayout layout,
                     AdapterConfig& adapter) {
  for (const TensorSpec& spec : matrices) {
    const auto found = pairs.find(spec.name);
    if (found == pairs.end()) continue;
    const std::string expression = pattern_key(spec.name, layout);
    model::LoraConfig lora = adapter.lora;
    lora.rank = rank_of(spec, found->second);
    if (lora.rank != adapter.lora.rank) adapter.rank_pattern.emplace_back(expression, lora.rank);
    if (lora.scale() == found->second.scale) continue;
    adapter.alpha_pattern.emplace_back(expression, alpha_of(found->second.scale, lora));
  }
}

}  // namespace

void derive_targets(const std::vector<TensorSpec>& matrices, const Pairs& pairs, AdapterLayout layout,
                    AdapterConfig& adapter) {
  std::string expressions;
  adapter.target_parameters.clear();
  for (const auto& [leaf, blocks] : leaves_of(matrices, pairs)) {
    const std::string matrix = blocks.all.front().canonical_prefix() + leaf;
    const bool as_module = !model::adapted_as_parameter(model::projection_path(matrix)) ||
                           (layout == AdapterLayout::kPerExpert && is_packed_experts(matrix));
    if (as_module) {
      for (const bool mtp : {false, true}) {
        const std::string pattern = module_pattern(leaf, blocks, mtp);
        if (!pattern.empty()) expressions += (expressions.empty() ? "(" : "|") + pattern;
      }
    } else if (blocks.adapted.size() == blocks.all.size()) {
      adapter.target_parameters.push_back(leaf);
    } else {
      for (const BlockName& block : blocks.adapted) {
        adapter.target_parameters.push_back(block.canonical_prefix() + leaf);
      }
    }
  }
  adapter.target_modules = expressions.empty() ? "" : expressions + ")";
  derive_patterns(matrices, pairs, layout, adapter);
}

}  // namespace asterism::checkpoint
