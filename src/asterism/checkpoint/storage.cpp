#include "asterism/checkpoint/storage.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "asterism/checkpoint/binding.h"
#include "asterism/checkpoint/problem_list.h"
#include "asterism/core/error.h"
#include "asterism/model/native_config.h"

namespace asterism::checkpoint {
using model::TensorRole;
using model::TensorSpec;

namespace {

constexpr int64_t kFp4Columns = 32;
constexpr int64_t kHeavyRatio = 128;  // of the release

// What the release stores as FP8, below a layer or an MTP block.
constexpr std::array<std::string_view, 11> kDenseLeaves = {
    "self_attn.q_a_proj.weight",
    "self_attn.q_b_proj.weight",
    "self_attn.kv_proj.weight",
    "self_attn.o_a_proj.weight",
    "self_attn.o_b_proj.weight",
    "self_attn.compressor.indexer.q_b_proj.weight",
    "mlp.shared_experts.gate_proj.weight",
    "mlp.shared_experts.up_proj.weight",
    "mlp.shared_experts.down_proj.weight",
    "e_proj.weight",
    "h_proj.weight",
};

std::string scale_name(const std::string& name, Spelling spelling) {
  const std::string ending = ".weight";
  if (!name.ends_with(ending)) return name + "_scale_inv";  // packed experts
  if (spelling != Spelling::kNative) return name + "_scale_inv";
  return name.substr(0, name.size() - ending.size()) + ".scale";
}

TargetTensor target(std::string name, const Form& form, std::vector<int64_t> shape, size_t spec, Spelling spelling) {
  TargetTensor tensor{.name = std::move(name), .form = form, .shape = std::move(shape), .spec = spec};
  if (form.is_coded()) tensor.scale_name = scale_name(tensor.name, spelling);
  return tensor;
}

/// What a class of matrices is stored as: the form of its first tensor.
std::optional<Form> form_of_class(TensorClass type, const std::vector<TensorSpec>& specs,
                                  const std::vector<TargetTensor>& tensors) {
  for (const TargetTensor& tensor : tensors) {
    if (tensor_class(specs[tensor.spec]) == type) return tensor.form;
  }
  return std::nullopt;
}

// The name that transformers and the release give a dtype.
std::string config_dtype(at::ScalarType dtype) {
  if (dtype == at::kDouble) return "float64";
  if (dtype == at::kHalf) return "float16";
  return dtype == at::kBFloat16 ? "bfloat16" : "float32";
}

// transformers leaves modules alone whose names contain one of these; DeepSeek's own programs go by the tensors.
nlohmann::ordered_json not_coded(const Form& experts, const Form& dense) {
  auto modules = nlohmann::ordered_json::array();
  if (!dense.is_coded()) modules = {"self_attn", "shared_experts", "lm_head"};
  if (!experts.is_coded()) modules.push_back("mlp.experts");
  return modules;
}

nlohmann::ordered_json quantization_config(const Form& experts, const Form& dense) {
  nlohmann::ordered_json json = {
      {"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}, {"activation_scheme", "dynamic"}};
  const Form& coded = dense.is_coded() ? dense : experts;
  if (coded.scale == at::kFloat8_e8m0fnu) json["scale_fmt"] = "ue8m0";
  const auto modules = not_coded(experts, dense);
  if (!modules.empty()) json["modules_to_not_convert"] = modules;
  return json;
}

}  // namespace

TensorClass tensor_class(const TensorSpec& spec) {
  if (spec.role != TensorRole::kMatrix) return TensorClass::kRest;
  if (is_packed_experts(spec.name)) return TensorClass::kExperts;
  const auto block = split_block(spec.name);
  const bool dense = block && std::ranges::find(kDenseLeaves, block->leaf) != kDenseLeaves.end();
  return dense ? TensorClass::kDense : TensorClass::kPlain;
}

const char* class_name(TensorClass type) {
  switch (type) {
    case TensorClass::kExperts:
      return "experts";
    case TensorClass::kDense:
      return "dense matrices";
    case TensorClass::kPlain:
      return "other matrices";
    default:
      return "norms, mHC, tables";
  }
}

Form target_form(const TensorSpec& spec, const Form& now, const Storage& storage) {
  switch (tensor_class(spec)) {
    case TensorClass::kExperts:
      return storage.experts.value_or(now);
    case TensorClass::kDense:
      return storage.dense.value_or(now);
    case TensorClass::kPlain:
      if (!storage.dense) return now;
      return storage.dense->is_coded() ? Form::plain(at::kBFloat16) : *storage.dense;
    default:
      return spec.role == TensorRole::kNorm && storage.norms ? Form::plain(*storage.norms) : now;
  }
}

Form form_of_word(std::string_view word, at::ScalarType scale) {
  if (word == "fp4") return Form::fp4();
  if (word == "fp8") return Form::fp8(scale);
  if (word == "bf16") return Form::plain(at::kBFloat16);
  TORCH_CHECK(word == "fp32", "[storage] expected fp4, fp8, bf16 or fp32, got ", word);
  return Form::plain(at::kFloat);
}

std::vector<TargetTensor> target_tensors(const std::vector<TensorSpec>& specs, Spelling spelling,
                                         const std::function<Form(size_t spec)>& form_of) {
  std::vector<TargetTensor> tensors;
  ProblemList problems;
  for (size_t i = 0; i < specs.size(); ++i) {
    const TensorSpec& spec = specs[i];
    const Form form = form_of(i);
    if (form.coding == Form::Coding::kFp4 && spec.shape.back() % kFp4Columns != 0) {
      problems.add("matrices whose columns are no multiple of 32", text(spec.name, " ", at::IntArrayRef(spec.shape)));
      continue;
    }
    if (!is_packed_experts(spec.name)) {
      tensors.push_back(target(stored_name(spec.name, spelling), form, spec.shape, i, spelling));
      continue;
    }
    const auto matrices = packed_matrices(spec.name);
    if (spelling == Spelling::kModule) {
      tensors.push_back(target(spec.name, form, spec.shape, i, spelling));
      tensors.back().matrices = static_cast<int64_t>(matrices.size());
      continue;
    }
    for (int64_t expert = 0; expert < spec.shape[0]; ++expert) {
      for (const auto matrix : matrices) {
        const ExpertPart part{expert, matrix};
        tensors.push_back(target(stored_part_name({spec.name, part}, spelling), form, part_shape(spec), i, spelling));
        tensors.back().part = part;
      }
    }
  }
  problems.throw_if_any("FP4 has one scale per 32 columns", "store them as fp8 or bf16");
  return tensors;
}

std::string config_text(const model::Config& config, const std::vector<TensorSpec>& specs,
                        const std::vector<TargetTensor>& tensors, Spelling spelling) {
  const bool native = spelling == Spelling::kNative;
  auto json = native ? model::config_to_native_json(config) : model::config_to_json(config);
  json.erase("torch_dtype");
  json.erase("dtype");
  const Form plain = form_of_class(TensorClass::kPlain, specs, tensors).value_or(Form::plain(at::kFloat));
  json[native ? "torch_dtype" : "dtype"] = config_dtype(plain.dtype);
  json["num_nextn_predict_layers"] = config.num_mtp_layers;
  json.erase("quantization_config");
  json.erase("expert_dtype");
  const auto experts = form_of_class(TensorClass::kExperts, specs, tensors);
  const auto dense = form_of_class(TensorClass::kDense, specs, tensors);
  if (experts && dense && (experts->is_coded() || dense->is_coded())) {
    json["expert_dtype"] = experts->coding == Form::Coding::kFp4   ? "fp4"
                           : experts->coding == Form::Coding::kFp8 ? "fp8"
                                                                   : config_dtype(experts->dtype);
    json["quantization_config"] = quantization_config(*experts, *dense);
  }
  return json.dump(2) + "\n";
}

std::vector<std::string> config_warnings(const model::Config& config, Spelling spelling) {
  if (spelling != Spelling::kNative) return {};
  const auto json = model::config_to_native_json(config);
  const auto ratios = json.find("compress_ratios");
  if (ratios == json.end()) return {};
  for (const auto& ratio : *ratios) {
    if (ratio == 0 || ratio == 4 || ratio == kHeavyRatio) continue;
    return {text("config.json: compress_ratios holds ", ratio.dump(), ", and transformers 5.23 reads 0, 4 and ",
                 kHeavyRatio, " only; the layout hf, which has compress_rates, can be read with it")};
  }
  return {};
}

}  // namespace asterism::checkpoint
