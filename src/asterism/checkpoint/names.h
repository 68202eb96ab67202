#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace asterism::checkpoint {

/// A name below a layer or an MTP block: "model.layers.3.self_attn.sinks" has number 3 and leaf "self_attn.sinks".
struct BlockName {
  bool mtp = false;
  int64_t number = 0;
  std::string_view leaf;  // points into the text that was split

  /// "model.layers.3." or "mtp.0.".
  std::string canonical_prefix() const { return (mtp ? "mtp." : "model.layers.") + std::to_string(number) + "."; }
};

/// nullopt when `name` does not start with "model.layers.N.", "layers.N." or "mtp.N.".
std::optional<BlockName> split_block(std::string_view name);

/// How a checkpoint spells its tensor names (model-spec 6.4). Canonical names are the module names of Hugging Face,
/// with MTP blocks as "mtp.0." + the names of a layer ("mtp.0.self_attn.q_a_proj.weight", "mtp.0.hc_head.hc_fn").
enum class Spelling {
  kModule,          // canonical: model.layers.0.self_attn.q_a_proj.weight, experts packed
  kSavePretrained,  // what transformers writes: model.layers.0.attn.wq_a.weight, one tensor per expert matrix; MTP
                    // native
  kNative,          // DeepSeek's release: layers.0.attn.wq_a.weight, one tensor per expert matrix
};

/// One matrix of one expert within a packed tensor.
struct ExpertPart {
  enum class Matrix { kGate, kUp, kDown };  // w1, w3, w2
  int64_t expert = 0;
  Matrix matrix = Matrix::kGate;
  bool operator==(const ExpertPart&) const = default;
};

/// What a stored name holds: a whole tensor, or one part of the packed tensor `tensor`
/// ("model.layers.0.mlp.experts.gate_up_proj": kGate in rows 0 .. I-1 of its expert, kUp in rows I .. 2I-1).
struct CanonicalName {
  std::string tensor;
  std::optional<ExpertPart> part;
  bool operator==(const CanonicalName&) const = default;
};

/// Reads a name in any of the three spellings, also mixed, and the names of single experts under module names
/// (mlp.experts.0.gate_proj.weight), and native names with "model." in front of them, as some converters publish them.
/// Names match as a whole; a canonical name is returned as it is. nullopt for a name that no spelling has; whether a
/// model has the layer or expert is the caller's question.
std::optional<CanonicalName> canonical_name(std::string_view stored);

/// The name of a whole canonical tensor in a spelling. Packed experts have no such name outside kModule and a name that
/// is not canonical has none at all: internal errors.
std::string stored_name(const std::string& canonical, Spelling spelling);

/// The name of one part of a packed tensor in kSavePretrained or kNative.
std::string stored_part_name(const CanonicalName& name, Spelling spelling);

/// Whether a canonical name is that of packed experts.
bool is_packed_experts(std::string_view canonical);

/// The matrices of one expert that make up a packed tensor, in the order of their rows, which divide evenly among them.
std::vector<ExpertPart::Matrix> packed_matrices(std::string_view canonical);

/// "DeepSeek's names", "Hugging Face's module names", ...: what most of the names of a checkpoint are, for the log.
std::string describe_spelling(const std::vector<std::string>& stored);

/// The spelling in which a checkpoint with these names is written again: that of most of its names below a layer.
Spelling own_spelling(const std::vector<std::string>& stored);

/// Copies of the trunk's embedding and head that some files hold below "mtp.N."; they carry nothing of their own.
bool is_shared_copy(std::string_view stored);

}  // namespace asterism::checkpoint
