#include "asterism/checkpoint/names.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <unordered_map>

namespace asterism::checkpoint {

namespace {

/// The names of one tensor below a prefix. An empty `saved` means the native name.
struct Leaf {
  std::string_view module;
  std::string_view native;
  std::string_view saved = {};

  std::string_view spelled(Spelling spelling) const {
    if (spelling == Spelling::kModule) return module;
    return spelling == Spelling::kSavePretrained && !saved.empty() ? saved : native;
  }
};

// Outside the layers; whole names.
constexpr std::array<Leaf, 6> kModelNames = {{
    {"model.embed_tokens.weight", "embed.weight", "model.embed_tokens.weight"},
    {"model.norm.weight", "norm.weight", "model.norm.weight"},
    {"model.hc_head.hc_fn", "hc_head_fn", "model.hc_head.hc_fn"},
    {"model.hc_head.hc_base", "hc_head_base", "model.hc_head.hc_base"},
    {"model.hc_head.hc_scale", "hc_head_scale", "model.hc_head.hc_scale"},
    {"lm_head.weight", "head.weight"},
}};

// Below "model.layers.N." (native "layers.N.") and "mtp.N.".
constexpr std::array<Leaf, 32> kLayerNames = {{
    {"input_layernorm.weight", "attn_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"attn_hc.fn", "hc_attn_fn"},
    {"attn_hc.base", "hc_attn_base"},
    {"attn_hc.scale", "hc_attn_scale"},
    {"ffn_hc.fn", "hc_ffn_fn"},
    {"ffn_hc.base", "hc_ffn_base"},
    {"ffn_hc.scale", "hc_ffn_scale"},
    {"self_attn.q_a_proj.weight", "attn.wq_a.weight"},
    {"self_attn.q_a_norm.weight", "attn.q_norm.weight"},
    {"self_attn.q_b_proj.weight", "attn.wq_b.weight"},
    {"self_attn.kv_proj.weight", "attn.wkv.weight"},
    {"self_attn.kv_norm.weight", "attn.kv_norm.weight", "attn.norm.weight"},
    {"self_attn.o_a_proj.weight", "attn.wo_a.weight"},
    {"self_attn.o_b_proj.weight", "attn.wo_b.weight"},
    {"self_attn.sinks", "attn.attn_sink"},
    {"self_attn.compressor.kv_proj.weight", "attn.compressor.wkv.weight"},
    {"self_attn.compressor.gate_proj.weight", "attn.compressor.wgate.weight"},
    {"self_attn.compressor.position_bias", "attn.compressor.ape"},
    {"self_attn.compressor.kv_norm.weight", "attn.compressor.norm.weight"},
    {"self_attn.compressor.indexer.q_b_proj.weight", "attn.indexer.wq_b.weight"},
    {"self_attn.compressor.indexer.scorer.weights_proj.weight", "attn.indexer.weights_proj.weight"},
    {"self_attn.compressor.indexer.kv_proj.weight", "attn.indexer.compressor.wkv.weight"},
    {"self_attn.compressor.indexer.gate_proj.weight", "attn.indexer.compressor.wgate.weight"},
    {"self_attn.compressor.indexer.position_bias", "attn.indexer.compressor.ape"},
    {"self_attn.compressor.indexer.kv_norm.weight", "attn.indexer.compressor.norm.weight"},
    {"mlp.gate.weight", "ffn.gate.weight"},
    {"mlp.gate.e_score_correction_bias", "ffn.gate.bias"},
    {"mlp.gate.tid2eid", "ffn.gate.tid2eid"},
    {"mlp.shared_experts.gate_proj.weight", "ffn.shared_experts.w1.weight"},
    {"mlp.shared_experts.up_proj.weight", "ffn.shared_experts.w3.weight"},
    {"mlp.shared_experts.down_proj.weight", "ffn.shared_experts.w2.weight"},
}};

// Below "mtp.N." only. MTP blocks are unknown to transformers, so its spelling is the native one.
constexpr std::array<Leaf, 8> kMtpNames = {{
    {"e_proj.weight", "e_proj.weight"},
    {"h_proj.weight", "h_proj.weight"},
    {"enorm.weight", "enorm.weight"},
    {"hnorm.weight", "hnorm.weight"},
    {"norm.weight", "norm.weight"},
    {"hc_head.hc_fn", "hc_head_fn"},
    {"hc_head.hc_base", "hc_head_base"},
    {"hc_head.hc_scale", "hc_head_scale"},
}};

// Names that are read but never written: {stored, module}. Earlier versions of transformers had no scorer module.
constexpr std::array<std::pair<std::string_view, std::string_view>, 1> kLayerAliases = {{
    {"self_attn.compressor.indexer.weights_proj.weight", "self_attn.compressor.indexer.scorer.weights_proj.weight"},
}};

/// Names of one expert's matrix below "mlp.experts.E." (module) or "ffn.experts.E." (native).
struct ExpertLeaf {
  ExpertPart::Matrix matrix;
  std::string_view packed;
  std::string_view module;
  std::string_view native;
};

constexpr std::array<ExpertLeaf, 3> kExpertNames = {{
    {ExpertPart::Matrix::kGate, "mlp.experts.gate_up_proj", "gate_proj.weight", "w1.weight"},
    {ExpertPart::Matrix::kUp, "mlp.experts.gate_up_proj", "up_proj.weight", "w3.weight"},
    {ExpertPart::Matrix::kDown, "mlp.experts.down_proj", "down_proj.weight", "w2.weight"},
}};

constexpr std::string_view kExpertPrefixes[] = {"ffn.experts.", "mlp.experts."};
constexpr std::string_view kSharedCopies[] = {"embed.weight", "emb.tok_emb.weight", "head.weight"};

using NameMap = std::unordered_map<std::string_view, std::string_view>;

void add_spellings(std::span<const Leaf> leaves, NameMap& map) {
  for (const Leaf& leaf : leaves) {
    for (const std::string_view stored : {leaf.module, leaf.native, leaf.saved}) {
      if (!stored.empty()) map.emplace(stored, leaf.module);
    }
  }
}

const NameMap& model_names() {
  static const NameMap map = [] {
    NameMap names;
    add_spellings(kModelNames, names);
    return names;
  }();
  return map;
}

const NameMap& layer_names() {
  static const NameMap map = [] {
    NameMap names;
    add_spellings(kLayerNames, names);
    names.insert(kLayerAliases.begin(), kLayerAliases.end());
    for (const ExpertLeaf& leaf : kExpertNames) names.emplace(leaf.packed, leaf.packed);
    return names;
  }();
  return map;
}

const NameMap& mtp_names() {
  static const NameMap map = [] {
    NameMap names = layer_names();
    add_spellings(kMtpNames, names);
    return names;
  }();
  return map;
}

/// A number at the start of `text` that ends with a dot: both are removed. No leading zeros, so that a layer has one
/// name.
std::optional<int64_t> take_number(std::string_view& text) {
  const size_t dot = text.find('.');
  if (dot == 0 || dot == std::string_view::npos || (text[0] == '0' && dot > 1)) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + dot, number);
  if (error != std::errc() || end != text.data() + dot || number < 0) return std::nullopt;
  text.remove_prefix(dot + 1);
  return number;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<CanonicalName> expert_name(const BlockName& block) {
  for (const std::string_view prefix : kExpertPrefixes) {
    std::string_view rest = block.leaf;
    if (!take_prefix(rest, prefix)) continue;
    const auto expert = take_number(rest);
    if (!expert) return std::nullopt;
    for (const ExpertLeaf& leaf : kExpertNames) {
      if (rest != leaf.module && rest != leaf.native) continue;
      return CanonicalName{block.canonical_prefix() + std::string(leaf.packed), ExpertPart{*expert, leaf.matrix}};
    }
  }
  return std::nullopt;
}

/// "model.layers.3." in a spelling.
std::string block_prefix(const BlockName& block, Spelling spelling) {
  const std::string canonical = block.canonical_prefix();
  return !block.mtp && spelling == Spelling::kNative ? canonical.substr(std::string("model.").size()) : canonical;
}

std::optional<std::string> spelled_leaf(std::span<const Leaf> leaves, std::string_view module, Spelling spelling) {
  for (const Leaf& leaf : leaves) {
    if (leaf.module == module) return std::string(leaf.spelled(spelling));
  }
  return std::nullopt;
}

bool is_module_leaf(std::string_view leaf) {
  return leaf.starts_with("self_attn.") || leaf.starts_with("mlp.");
}

/// The first name below a layer that tells the spelling; "" when there is none. Names outside the layers differ less,
/// and MTP blocks keep native names in every spelling but one.
std::string_view telling_name(const std::vector<std::string>& stored) {
  for (const std::string_view name : stored) {
    const auto block = split_block(name);
    if (!block || block->mtp) continue;
    const bool native = block->leaf.starts_with("attn.") || block->leaf.starts_with("ffn.");
    if (native || is_module_leaf(block->leaf)) return name;
  }
  return {};
}

/// A native name behind "model.".
std::optional<CanonicalName> prefixed_name(std::string_view stored) {
  if (!take_prefix(stored, "model.")) return std::nullopt;
  const auto name = canonical_name(stored);
  if (!name || (!name->part && is_packed_experts(name->tensor))) return std::nullopt;
  const std::string native =
      name->part ? stored_part_name(*name, Spelling::kNative) : stored_name(name->tensor, Spelling::kNative);
  return native == stored ? name : std::nullopt;
}

}  // namespace

std::optional<BlockName> split_block(std::string_view name) {
  BlockName block;
  block.leaf = name;
  block.mtp = take_prefix(block.leaf, "mtp.");
  if (!block.mtp && !take_prefix(block.leaf, "model.layers.") && !take_prefix(block.leaf, "layers.")) {
    return std::nullopt;
  }
  const auto number = take_number(block.leaf);
  if (!number) return std::nullopt;
  block.number = *number;
  return block;
}

std::optional<CanonicalName> canonical_name(std::string_view stored) {
  const auto block = split_block(stored);
  const NameMap& names = !block ? model_names() : block->mtp ? mtp_names() : layer_names();
  const auto found = names.find(block ? block->leaf : stored);
  if (found != names.end()) {
    return CanonicalName{(block ? block->canonical_prefix() : "") + std::string(found->second), std::nullopt};
  }
  return block ? expert_name(*block) : prefixed_name(stored);
}

std::string stored_name(const std::string& canonical, Spelling spelling) {
  const auto block = split_block(canonical);
  std::optional<std::string> leaf;
  if (!block) {
    leaf = spelled_leaf(kModelNames, canonical, spelling);
  } else if (is_packed_experts(canonical) && spelling == Spelling::kModule) {
    return canonical;
  } else {
    leaf = spelled_leaf(kLayerNames, block->leaf, spelling);
    if (!leaf && block->mtp) leaf = spelled_leaf(kMtpNames, block->leaf, spelling);
  }
  TORCH_CHECK(leaf, "[names] expected the canonical name of a tensor that is stored whole, got ", canonical);
  if (!block) return *leaf;
  // The renames of transformers, applied backwards, never touch mtp.*: such tensors keep DeepSeek's names.
  if (block->mtp && spelling == Spelling::kSavePretrained) return stored_name(canonical, Spelling::kNative);
  return block_prefix(*block, spelling) + *leaf;
}

std::string stored_part_name(const CanonicalName& name, Spelling spelling) {
  const auto block = split_block(name.tensor);
  const bool packed = block && name.part && is_packed_experts(name.tensor);
  TORCH_CHECK(packed && spelling != Spelling::kModule, "[names] expected a part of packed experts, got ", name.tensor);
  const auto* leaf = std::find_if(kExpertNames.begin(), kExpertNames.end(),
                                  [&](const ExpertLeaf& candidate) { return candidate.matrix == name.part->matrix; });
  return block_prefix(*block, spelling) + "ffn.experts." + std::to_string(name.part->expert) + "." +
         std::string(leaf->native);
}

bool is_packed_experts(std::string_view canonical) {
  const auto block = split_block(canonical);
  return block && std::any_of(kExpertNames.begin(), kExpertNames.end(),
                              [&](const ExpertLeaf& leaf) { return leaf.packed == block->leaf; });
}

std::vector<ExpertPart::Matrix> packed_matrices(std::string_view canonical) {
  TORCH_CHECK(is_packed_experts(canonical), "[names] expected the name of packed experts, got ", canonical);
  if (canonical.ends_with("gate_up_proj")) return {ExpertPart::Matrix::kGate, ExpertPart::Matrix::kUp};
  return {ExpertPart::Matrix::kDown};
}

std::string describe_spelling(const std::vector<std::string>& stored) {
  const std::string_view name = telling_name(stored);
  if (name.empty()) return "unknown names";
  if (is_module_leaf(split_block(name)->leaf)) return "Hugging Face's module names";
  return name.starts_with("model.") ? "DeepSeek's names below model." : "DeepSeek's names";
}

Spelling own_spelling(const std::vector<std::string>& stored) {
  const std::string_view name = telling_name(stored);
  if (name.empty() || is_module_leaf(split_block(name)->leaf)) return Spelling::kModule;
  // All names of the release behind "model.": the embedding tells it from what transformers saves.
  const bool prefixed = std::ranges::find(stored, "model.embed.weight") != stored.end();
  return name.starts_with("model.") && !prefixed ? Spelling::kSavePretrained : Spelling::kNative;
}

bool is_shared_copy(std::string_view stored) {
  const auto block = split_block(stored);
  return block && block->mtp &&
         std::find(std::begin(kSharedCopies), std::end(kSharedCopies), block->leaf) != std::end(kSharedCopies);
}

}  // namespace asterism::checkpoint
