#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "asterism/model/lora.h"

namespace asterism::checkpoint {

/// adapter_config.json of PEFT, as far as it bears on a LoRA adapter of this model.
struct AdapterConfig {
  model::LoraConfig lora = {};  // without targets; dropout is that of the training run
  std::vector<std::pair<std::string, int64_t>> rank_pattern =
      {};  // expression over paths -> rank in place of lora.rank
  std::vector<std::pair<std::string, double>> alpha_pattern = {};  // the same for lora.alpha
  std::optional<std::string> base_model = {};                      // base_model_name_or_path
  std::string target_modules = {};                  // a regular expression over whole module paths, as it is written
  std::vector<std::string> target_parameters = {};  // ends of parameter paths
  std::string peft_version = {};                    // that wrote the file; "" when it does not say

  /// Whether target_parameters names this parameter ("model.layers.0.mlp.experts.down_proj"), by PEFT's rule: the whole
  /// path, or its end after a dot.
  bool targets_parameter(const std::string& path) const;

  /// Whether the version lays the pairs of packed experts out as the current one: A [E r, in], B [out, r E]. Versions
  /// before 0.21 took the rows of such a parameter for its columns.
  bool has_current_layout() const;

  /// `lora` with the rank and alpha of one matrix, by PEFT's rule: the first expression that matches the whole path, or
  /// its end after a dot. `path` is that of the module, or of the parameter where PEFT adapts parameters
  /// (pattern_path).
  model::LoraConfig lora_of(const std::string& path) const;
};

/// The path that rank and alpha patterns are matched with: the module "model.layers.0.self_attn.q_a_proj", but the
/// parameter "model.layers.0.self_attn.o_a_proj.weight".
std::string pattern_path(const std::string& matrix);

/// Reads the file. target_modules is left empty: the names of the tensors say which modules are adapted.
/// InputError for another method than LoRA and for every feature that would change what the adapter computes (DoRA,
/// biases, base weights changed by the initialisation, ...), and for keys that are unknown unless they are switched
/// off.
AdapterConfig read_adapter_config(const std::filesystem::path& file);

/// Text of the file as PEFT 0.21.2 reads it. The dropout is 0 when parameters are targeted, since PEFT refuses others.
std::string adapter_config_text(const AdapterConfig& config);

}  // namespace asterism::checkpoint
