#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/checkpoint/names.h"
#include "asterism/checkpoint/stored_tensor.h"
#include "asterism/model/config.h"
#include "asterism/model/weights.h"

namespace asterism::checkpoint {

/// What a tensor is stored as depends on its class (model-spec 6.1).
enum class TensorClass {
  kExperts,  // matrices of the routed experts: FP4 or FP8 as released
  kDense,    // the other matrices that are FP8 as released
  kPlain,    // embedding, head, gates, compressors: never coded
  kRest,     // norms, mHC, sinks, biases, tables: as they are, always
};

TensorClass tensor_class(const model::TensorSpec& spec);
/// "experts", "dense matrices", "other matrices", "norms, mHC, tables".
const char* class_name(TensorClass type);

/// How the matrices of a checkpoint are to be stored; what is absent stays as it is.
struct Storage {
  std::optional<Form> experts = {};
  std::optional<Form> dense = {};            // of kPlain too: BF16 where `dense` is FP8
  std::optional<at::ScalarType> norms = {};  // TensorRole::kNorm

  bool is_coded() const { return (experts && experts->is_coded()) || (dense && dense->is_coded()); }
};

/// The form of a tensor that has the form `now`.
Form target_form(const model::TensorSpec& spec, const Form& now, const Storage& storage);

/// "fp4", "fp8", "bf16" or "fp32" (interface of convert and init). An internal error for other words.
Form form_of_word(std::string_view word, at::ScalarType scale = at::kFloat8_e8m0fnu);

/// A stored tensor that is to be written, with its scales: a tensor of the model, or a part of packed experts.
struct TargetTensor {
  std::string name;
  std::string scale_name = {};  // "" when the form has none
  Form form = {};
  std::vector<int64_t> shape = {};  // of the values
  size_t spec = 0;                  // which of tensor_specs
  std::optional<ExpertPart> part = {};

  /// Matrices above each other in one expert: 2 in packed gate_up_proj.
  int64_t matrices = 1;
};

/// All tensors of a model in a spelling, in the order of the network. `form_of` tells the form of a tensor by its
/// number in `specs`. InputError that lists the matrices whose columns FP4 cannot hold: their number must be a multiple
/// of 32.
std::vector<TargetTensor> target_tensors(const std::vector<model::TensorSpec>& specs, Spelling spelling,
                                         const std::function<Form(size_t spec)>& form_of);

/// config.json for a checkpoint of these tensors: as Hugging Face saves it, or as DeepSeek releases it for kNative.
/// dtype, quantization_config and expert_dtype say what the tensors are.
std::string config_text(const model::Config& config, const std::vector<model::TensorSpec>& specs,
                        const std::vector<TargetTensor>& tensors, Spelling spelling);

/// What other programs cannot read of the config.json that config_text writes: transformers 5.23 takes no
/// compress_ratios but 0, 4 and 128.
std::vector<std::string> config_warnings(const model::Config& config, Spelling spelling);

}  // namespace asterism::checkpoint
