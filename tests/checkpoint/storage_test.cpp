#include "asterism/checkpoint/storage.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/core/error.h"
#include "tests/support/conversions.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::conversion_config_json;
using asterism::testing::error_of;
using OrderedJson = nlohmann::ordered_json;
using asterism::testing::kBf16;
using asterism::testing::kFp32;

model::Config storage_config() {
  return model::parse_config(conversion_config_json(1), "test");
}

std::vector<TargetTensor> storage_targets(Spelling spelling, const Storage& storage) {
  const auto specs = model::tensor_specs(storage_config());
  return target_tensors(specs, spelling, [&](size_t spec) { return target_form(specs[spec], kFp32, storage); });
}

const TargetTensor& find_target(const std::vector<TargetTensor>& tensors, const std::string& name) {
  for (const TargetTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no " + name);
}

TEST(Storage, ClassesAreThoseOfTheRelease) {
  std::map<TensorClass, std::set<std::string>> leaves;
  for (const auto& spec : model::tensor_specs(storage_config())) {
    const auto block = split_block(spec.name);
    leaves[tensor_class(spec)].insert(block ? std::string(block->leaf) : spec.name);
  }
  EXPECT_EQ(leaves[TensorClass::kExperts],
            (std::set<std::string>{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  EXPECT_EQ(leaves[TensorClass::kDense].size(), 11U);
  EXPECT_EQ(
      leaves[TensorClass::kPlain],
      (std::set<std::string>{
          "model.embed_tokens.weight", "lm_head.weight", "mlp.gate.weight", "self_attn.compressor.kv_proj.weight",
          "self_attn.compressor.gate_proj.weight", "self_attn.compressor.indexer.kv_proj.weight",
          "self_attn.compressor.indexer.gate_proj.weight", "self_attn.compressor.indexer.scorer.weights_proj.weight"}));
}

TEST(Storage, FormsFollowTheClass) {
  const Storage released = {.experts = Form::fp4(), .dense = Form::fp8(), .norms = at::kBFloat16};
  const auto form = [&](const std::string& name, model::TensorRole role) {
    return target_form({name, {2, 2}, role}, kFp32, released);
  };
  EXPECT_EQ(form("model.layers.0.mlp.experts.down_proj", model::TensorRole::kMatrix), Form::fp4());
  EXPECT_EQ(form("model.layers.0.self_attn.q_a_proj.weight", model::TensorRole::kMatrix), Form::fp8());
  EXPECT_EQ(form("model.layers.0.mlp.gate.weight", model::TensorRole::kMatrix), kBf16);
  EXPECT_EQ(form("model.norm.weight", model::TensorRole::kNorm), kBf16);
  EXPECT_EQ(form("model.layers.0.attn_hc.fn", model::TensorRole::kFp32), kFp32);
  EXPECT_EQ(target_form({"lm_head.weight", {2, 2}, model::TensorRole::kMatrix}, kBf16, {}), kBf16);
}

TEST(Storage, ScalesHaveTheNamesOfTheSpelling) {
  const Storage storage = {.experts = Form::fp8(), .dense = Form::fp8()};
  const auto native = storage_targets(Spelling::kNative, storage);
  EXPECT_EQ(find_target(native, "layers.1.attn.wq_a.weight").scale_name, "layers.1.attn.wq_a.scale");
  EXPECT_EQ(find_target(native, "layers.1.ffn.experts.2.w3.weight").scale_name, "layers.1.ffn.experts.2.w3.scale");
  EXPECT_EQ(find_target(native, "mtp.0.e_proj.weight").scale_name, "mtp.0.e_proj.scale");
  EXPECT_EQ(find_target(native, "embed.weight").scale_name, "");
  const auto module = storage_targets(Spelling::kModule, storage);
  EXPECT_EQ(find_target(module, "model.layers.1.self_attn.q_a_proj.weight").scale_name,
            "model.layers.1.self_attn.q_a_proj.weight_scale_inv");
  const TargetTensor& packed = find_target(module, "model.layers.1.mlp.experts.gate_up_proj");
  EXPECT_EQ(packed.scale_name, "model.layers.1.mlp.experts.gate_up_proj_scale_inv");
  EXPECT_EQ(packed.matrices, 2);
}

TEST(Storage, Fp4NeedsColumnsInThirtyTwos) {
  auto json = conversion_config_json(0);
  json["moe_intermediate_size"] = 72;
  const auto specs = model::tensor_specs(model::parse_config(json, "test"));
  const std::string message = error_of<InputError>([&] {
    target_tensors(specs, Spelling::kNative,
                   [&](size_t spec) { return target_form(specs[spec], kFp32, {.experts = Form::fp4()}); });
  });
  EXPECT_NE(message.find("model.layers.0.mlp.experts.down_proj [3, 160, 72]"), std::string::npos) << message;
  EXPECT_EQ(message.find("gate_up_proj"), std::string::npos) << message;
}

OrderedJson written_config(Spelling spelling, const Storage& storage) {
  const auto specs = model::tensor_specs(storage_config());
  return OrderedJson::parse(config_text(storage_config(), specs, storage_targets(spelling, storage), spelling));
}

TEST(Storage, TheConfigSaysWhatTheTensorsAre) {
  const Storage released = {.experts = Form::fp4(), .dense = Form::fp8()};
  const OrderedJson native = written_config(Spelling::kNative, released);
  EXPECT_EQ(native["expert_dtype"], "fp4");
  EXPECT_EQ(native["torch_dtype"], "bfloat16");
  EXPECT_EQ(native["quantization_config"]["scale_fmt"], "ue8m0");
  EXPECT_EQ(native["quantization_config"]["weight_block_size"], OrderedJson({128, 128}));
  EXPECT_FALSE(native["quantization_config"].contains("modules_to_not_convert"));
  EXPECT_EQ(native["compress_ratios"], OrderedJson({0, 4, 128, 0}));
  EXPECT_EQ(native["transformers_version"], "5.23.0") << "unknown keys stay";

  const OrderedJson base =
      written_config(Spelling::kNative, {.experts = Form::fp8(at::kFloat), .dense = Form::fp8(at::kFloat)});
  EXPECT_EQ(base["expert_dtype"], "fp8");
  EXPECT_FALSE(base["quantization_config"].contains("scale_fmt"));

  const OrderedJson plain = written_config(Spelling::kModule, {.experts = kBf16, .dense = kBf16});
  EXPECT_FALSE(plain.contains("quantization_config"));
  EXPECT_FALSE(plain.contains("expert_dtype"));
  EXPECT_FALSE(plain.contains("torch_dtype"));
  EXPECT_EQ(plain["dtype"], "bfloat16");
  EXPECT_TRUE(plain.contains("layer_types"));
  EXPECT_EQ(plain["num_nextn_predict_layers"], 1);

  const OrderedJson mixed = written_config(Spelling::kModule, {.experts = Form::fp8(), .dense = kBf16});
  EXPECT_EQ(mixed["quantization_config"]["modules_to_not_convert"],
            OrderedJson({"self_attn", "shared_experts", "lm_head"}));
  const OrderedJson other = written_config(Spelling::kModule, {.experts = kBf16, .dense = Form::fp8()});
  EXPECT_EQ(other["expert_dtype"], "bfloat16");
  EXPECT_EQ(other["quantization_config"]["modules_to_not_convert"], OrderedJson({"mlp.experts"}));
}

TEST(Storage, WordsOfTheCommandLine) {
  EXPECT_EQ(form_of_word("fp4"), Form::fp4());
  EXPECT_EQ(form_of_word("fp8", at::kFloat), Form::fp8(at::kFloat));
  EXPECT_EQ(form_of_word("bf16"), kBf16);
  EXPECT_EQ(form_of_word("fp32"), kFp32);
  EXPECT_THROW(form_of_word("fp16"), c10::Error);
}

TEST(Storage, RatiosThatTransformersCannotReadAreNamed) {
  auto json = conversion_config_json(1);
  EXPECT_TRUE(config_warnings(model::parse_config(json, "test"), Spelling::kNative).empty());
  json["compress_ratios"] = {0, 4, 16, 0};
  const auto config = model::parse_config(json, "test");
  const auto warnings = config_warnings(config, Spelling::kNative);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("compress_ratios holds 16"), std::string::npos) << warnings[0];
  EXPECT_TRUE(config_warnings(config, Spelling::kModule).empty()) << "has compress_rates";
}

}  // namespace
}  // namespace asterism::checkpoint
