#include "asterism/checkpoint/adapter_merge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "asterism/checkpoint/fingerprint.h"
#include "tests/checkpoint/merge_files.h"

namespace asterism::checkpoint {
namespace {

using namespace merge_files;
using asterism::testing::conversion_config_json;
using asterism::testing::error_of;
using asterism::testing::kBf16;
using asterism::testing::kFp32;
using asterism::testing::same_tensors;
using asterism::testing::stored_tensors_of;
using asterism::testing::TemporaryFolder;
using asterism::testing::write_conversion_source;
using Values = std::map<std::string, at::Tensor>;

/// What merging in memory makes of a base and an adapter, rounded to the forms of `like`, in fp32.
Values merged_in_memory(const fs::path& base, const fs::path& adapter, const fs::path& like) {
  const auto config = model::read_config(base / "config.json");
  auto weights = read_weights(base, config, {.packed = true}).weights;
  load_adapter(adapter, config, weights);
  merge_rounded(config, weights, stored_forms(like, config));
  Values values;
  model::for_each_weight(config, weights, [&](const model::TensorSpec& spec, const ops::Matrix& weight) {
    values[spec.name] = spec.role == model::TensorRole::kTable ? weight.plain : weight.to(at::kFloat);
  });
  return values;
}

struct MergeCase {
  const char* name;
  WriteOptions base;
  Spelling spelling;
  Storage storage;
};

class MergeInto : public ::testing::TestWithParam<MergeCase> {};

TEST_P(MergeInto, EveryMatrixEqualsTheMergeInMemory) {
  const auto& [name, base, spelling, storage] = GetParam();
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 1, base);
  write_pairs(folder / "adapter", config, pairs_of_size(config, every_matrix(config), 1.0));
  const auto report = merge(folder / "base", folder / "adapter", folder / "merged", spelling, storage);
  EXPECT_EQ(report.edited.size(), every_matrix(config).size());

  const Values before = loaded_values(folder / "base"), after = loaded_values(folder / "merged");
  const Values expected = merged_in_memory(folder / "base", folder / "adapter", folder / "merged");
  ASSERT_EQ(after.size(), expected.size());
  for (const auto& [tensor, values] : expected) EXPECT_TRUE(at::equal(after.at(tensor), values)) << tensor;

  // The same base without the adapter: the counts are the values that differ.
  convert_checkpoint(folder / "base", folder / "plain", {.spelling = spelling, .storage = storage}, 2);
  const Values plain = loaded_values(folder / "plain");
  for (const EditedTensor& edited : report.edited) {
    const at::Tensor &with = after.at(edited.name), &without = plain.at(edited.name);
    EXPECT_EQ(edited.counts.changed, with.ne(without).sum().item<int64_t>()) << edited.name;
    EXPECT_EQ(edited.counts.adapted, before.at(edited.name).numel()) << edited.name;
    EXPECT_GT(edited.counts.changed, 0) << edited.name;
    EXPECT_GT(edited.counts.kept(), 0.2) << edited.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Merge, MergeInto,
    ::testing::Values(
        MergeCase{"fp32", {.spelling = Spelling::kModule}, Spelling::kModule, {}},
        MergeCase{"fp32_native", {}, Spelling::kNative, {}},
        MergeCase{"bf16", {.storage = {.experts = kBf16, .dense = kBf16}}, Spelling::kSavePretrained, {}},
        MergeCase{"released", released_base(), Spelling::kNative, {}},
        MergeCase{"released_as_bf16", released_base(), Spelling::kModule, {.experts = kBf16, .dense = kBf16}},
        MergeCase{"fp32_as_released", {}, Spelling::kModule, {.experts = Form::fp4(), .dense = Form::fp8()}},
        MergeCase{"fp4_as_fp8", released_base(), Spelling::kModule, {.experts = Form::fp8(at::kFloat)}}),
    [](const auto& info) { return info.param.name; });

TEST(AdapterMerge, UnadaptedTensorsKeepTheirBytes) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, released_base());
  write_pairs(folder / "adapter", config, pairs_of_size(config, matrices({"self_attn.o_a_proj.weight"}, {0, 2}), 1.0));
  merge(folder / "base", folder / "adapter", folder / "merged");
  const auto before = stored_tensors_of(folder / "base"), after = stored_tensors_of(folder / "merged");
  ASSERT_EQ(before.size(), after.size());
  int64_t changed = 0;
  for (const auto& [name, tensor] : before) {
    const bool same = at::equal(tensor.contiguous().view(at::kByte), after.at(name).contiguous().view(at::kByte));
    if (same) continue;
    EXPECT_TRUE(name.starts_with("layers.0.attn.wo_a.") || name.starts_with("layers.2.attn.wo_a.")) << name;
    ++changed;
  }
  EXPECT_GE(changed, 2);
}

// rslora, and ranks and alphas of their own by patterns: the scale of each matrix is PEFT's.
TEST(AdapterMerge, EveryMatrixHasItsOwnRankAndScale) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, {});
  adapter_files::Json json = adapter_files::StoredAdapter().config;
  json.update(adapter_files::Json::parse(R"json({
    "r": 2, "lora_alpha": 3, "use_rslora": true, "target_modules": ["q_a_proj", "kv_proj"],
    "target_parameters": ["mlp.experts.down_proj"], "modules_to_save": null,
    "rank_pattern": {"layers.1.self_attn.q_a_proj": 5},
    "alpha_pattern": {"layers.1.self_attn.kv_proj": 7, "mlp.experts.down_proj": 11}})json"));
  fs::create_directory(folder / "adapter");
  folder.write("adapter/adapter_config.json", json.dump());
  const std::string layer = adapter_files::kRoot + "model.layers.1.";
  std::vector<NamedTensor> tensors;
  const auto add = [&](const std::string& path, int64_t rows_a, int64_t in, int64_t out) {
    tensors.push_back({layer + path + ".lora_A.weight", at::randn({rows_a, in})});
    tensors.push_back({layer + path + ".lora_B.weight", at::randn({out, rows_a})});
  };
  add("self_attn.q_a_proj", 5, 160, 96);
  add("self_attn.kv_proj", 2, 160, 48);
  add("mlp.experts", 3 * 2, 160, 160);
  write_safetensors(folder / "adapter" / "adapter_model.safetensors", tensors);
  merge(folder / "base", folder / "adapter", folder / "merged");

  const Values before = loaded_values(folder / "base"), after = loaded_values(folder / "merged");
  const auto tensor = [&](const std::string& name) {
    for (const NamedTensor& entry : tensors) {
      if (entry.name == layer + name) return entry.tensor.to(at::kDouble);
    }
    throw std::runtime_error(name);
  };
  const auto expect_update = [&](const std::string& name, const at::Tensor& update) {
    const std::string full = "model.layers.1." + name;
    EXPECT_TRUE(at::allclose((before.at(full).to(at::kDouble) + update).to(at::kFloat), after.at(full), 1e-6, 1e-7))
        << name;
  };
  const auto product = [&](const std::string& path) {
    return at::matmul(tensor(path + ".lora_B.weight"), tensor(path + ".lora_A.weight"));
  };
  expect_update("self_attn.q_a_proj.weight", product("self_attn.q_a_proj") * (3.0 / std::sqrt(5.0)));
  expect_update("self_attn.kv_proj.weight", product("self_attn.kv_proj") * (7.0 / std::sqrt(2.0)));
  const at::Tensor a = tensor("mlp.experts.lora_A.weight"), b = tensor("mlp.experts.lora_B.weight");
  std::vector<at::Tensor> updates;
  for (int64_t e = 0; e < 3; ++e) {  // rows 2e, 2e + 1 of A and columns e, e + 3 of B
    updates.push_back(at::matmul(b.index_select(1, at::tensor({e, e + 3}, at::kLong)), a.narrow(0, 2 * e, 2)));
  }
  expect_update("mlp.experts.down_proj", at::stack(updates) * (11.0 / std::sqrt(2.0)));
}

TEST(AdapterMerge, SavedModulesTakeThePlaceOfTheModels) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, released_base());
  model::Weights tuned = read_weights(folder / "base", config, {.matrix_dtype = at::kFloat}).weights;
  const model::Weights pairs = pairs_of_size(config, matrices({"self_attn.q_a_proj.weight"}, {1}), 1.0);
  tuned.layers[1].attention.attention.q_a_proj.lora = pairs.layers[1].attention.attention.q_a_proj.lora;
  tuned.lm_head = tuned.lm_head * 1.7;
  tuned.layers[0].moe.moe.tid2eid = 2 - tuned.layers[0].moe.moe.tid2eid;
  tuned.layers[1].moe.moe.bias = tuned.layers[1].moe.moe.bias + 0.3;
  tuned.layers[2].attention.norm = tuned.layers[2].attention.norm * 1.1;
  write_pairs(folder / "adapter", config, tuned, {"lm_head", "mlp.gate", "input_layernorm"});
  const auto report = merge(folder / "base", folder / "adapter", folder / "merged", Spelling::kModule);

  const Values before = loaded_values(folder / "base"), after = loaded_values(folder / "merged");
  const auto as_bf16 = [](const at::Tensor& tensor) { return tensor.to(at::kBFloat16).to(at::kFloat); };
  EXPECT_TRUE(at::equal(after.at("lm_head.weight"), as_bf16(tuned.lm_head)));
  EXPECT_TRUE(at::equal(after.at("model.layers.0.mlp.gate.tid2eid"), tuned.layers[0].moe.moe.tid2eid));
  EXPECT_TRUE(at::equal(after.at("model.layers.1.mlp.gate.e_score_correction_bias"), tuned.layers[1].moe.moe.bias));
  EXPECT_TRUE(at::equal(after.at("model.layers.2.input_layernorm.weight"), as_bf16(tuned.layers[2].attention.norm)));
  const std::string table = "model.layers.0.mlp.gate.tid2eid";
  for (const EditedTensor& edited : report.edited) {
    EXPECT_EQ(edited.counts.changed, after.at(edited.name).ne(before.at(edited.name)).sum().item<int64_t>())
        << edited.name;
    EXPECT_TRUE(edited.name != table || edited.counts.adapted == edited.counts.changed);
  }
}

// The update is less than half a step of every code that stands for a value other than 0.
TEST(AdapterMerge, AnUpdateBelowHalfAStepIsCountedAndLeavesTheFileAsItWas) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, released_base());
  const Names names = matrices({"mlp.experts.down_proj", "self_attn.q_b_proj.weight"}, {1});
  write_pairs(folder / "adapter", config, pairs_of_size(config, names, 1e-9));
  const auto report = merge(folder / "base", folder / "adapter", folder / "merged");
  ASSERT_EQ(report.edited.size(), 2U);
  EXPECT_EQ(report.edited[0].form, "FP8");
  EXPECT_EQ(report.edited[0].counts.adapted, 4 * 48 * 96);
  EXPECT_EQ(report.edited[0].counts.changed, 0);
  EXPECT_EQ(report.edited[1].form, "FP4");
  EXPECT_EQ(report.edited[1].counts.adapted, 3 * 160 * 160);
  EXPECT_EQ(report.edited[1].counts.changed, 0);
  const Values before = loaded_values(folder / "base");
  for (const auto& [name, values] : loaded_values(folder / "merged")) EXPECT_TRUE(at::equal(values, before.at(name)));
}

TEST(AdapterMerge, RowsWithoutAnUpdateAreNotAdapted) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, {});
  const model::Weights pairs = pairs_of_size(config, matrices({"mlp.experts.gate_up_proj"}, {1}), 1.0);
  at::Tensor b = pairs.layers[1].moe.moe.gate_up.lora->b_NR;
  b.copy_(at::zeros_like(b));
  b[7][1] = 0.5;  // row 7 of expert 1, first rank
  write_pairs(folder / "adapter", config, pairs);
  const auto report = merge(folder / "base", folder / "adapter", folder / "merged");
  ASSERT_EQ(report.edited.size(), 1U);
  EXPECT_EQ(report.edited[0].counts.adapted, 160);
  EXPECT_EQ(report.edited[0].counts.changed, 160);
  const at::Tensor moved = loaded_values(folder / "merged")
                               .at("model.layers.1.mlp.experts.gate_up_proj")
                               .ne(loaded_values(folder / "base").at("model.layers.1.mlp.experts.gate_up_proj"));
  EXPECT_EQ(moved[1][7].sum().item<int64_t>(), 160);
}

TEST(AdapterMerge, AnInterruptedMergeIsContinuedWithTheSameAdapterOnly) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, released_base());
  write_pairs(folder / "adapter", config, pairs_of_size(config, every_matrix(config), 1.0));
  write_pairs(folder / "other", config, pairs_of_size(config, every_matrix(config), 1.0, /*seed=*/8));
  const auto whole = merge(folder / "base", folder / "adapter", folder / "whole", Spelling::kModule);
  const fs::path begun = folder / "out.incomplete";
  fs::copy(folder / "whole", begun);
  const auto record = nlohmann::ordered_json::parse(read_text(begun / "conversion.json"));
  std::string journal = nlohmann::ordered_json({{"request", record["request"]}}).dump() + "\n";
  for (const auto& file : record["files"]) {
    const std::string name = file["file"];
    if (name.starts_with("model-00002")) {
      fs::remove(begun / name);
    } else {
      journal += file.dump() + "\n";
    }
  }
  fs::remove(begun / "conversion.json");
  folder.write("out.incomplete/conversion.jsonl", journal);

  const std::string message =
      error_of<InputError>([&] { merge(folder / "base", folder / "other", folder / "out", Spelling::kModule); });
  EXPECT_NE(message.find("belongs to another conversion (edit was {\"weights\":"), std::string::npos) << message;
  EXPECT_THROW(convert_checkpoint(folder / "base", folder / "out",
                                  {.spelling = Spelling::kModule, .max_shard_bytes = 500'000}, 1),
               InputError);
  const auto report = merge(folder / "base", folder / "adapter", folder / "out", Spelling::kModule);
  EXPECT_GT(report.bytes_kept, 0U);
  EXPECT_LT(report.bytes_kept, report.bytes);
  EXPECT_TRUE(same_tensors(stored_tensors_of(folder / "out"), stored_tensors_of(folder / "whole")));
  ASSERT_EQ(report.edited.size(), whole.edited.size());
  for (size_t i = 0; i < whole.edited.size(); ++i) {
    EXPECT_EQ(report.edited[i].counts.changed, whole.edited[i].counts.changed) << whole.edited[i].name;
    EXPECT_EQ(report.edited[i].counts.adapted, whole.edited[i].counts.adapted) << whole.edited[i].name;
  }
}

TEST(AdapterMerge, TheFingerprintIsThatOfTheContent) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, {});
  const Names names = matrices({"self_attn.q_a_proj.weight"}, {0});
  write_pairs(folder / "a", config, pairs_of_size(config, names, 1.0));
  write_pairs(folder / "b", config, pairs_of_size(config, names, 1.0));
  write_pairs(folder / "c", config, pairs_of_size(config, names, 1.0, /*seed=*/8));
  EXPECT_EQ(AdapterMerge(folder / "a", config).mark(), adapter_fingerprint(folder / "b"));
  EXPECT_NE(adapter_fingerprint(folder / "a"), adapter_fingerprint(folder / "c"));
}

TEST(AdapterMerge, NumbersThatAreNotFiniteAreRefused) {
  const TemporaryFolder folder;
  const auto config = write_conversion_source(folder / "base", 0, {});
  model::Weights pairs = pairs_of_size(config, matrices({"self_attn.q_a_proj.weight"}, {0, 1}), 1.0);
  pairs.layers[1].attention.attention.q_a_proj.lora->b_NR[3][1] = std::numeric_limits<float>::quiet_NaN();
  write_pairs(folder / "adapter", config, pairs);
  const std::string message = error_of<InputError>([&] { AdapterMerge(folder / "adapter", config); });
  EXPECT_NE(message.find("model.layers.1.self_attn.q_a_proj.weight.lora_B"), std::string::npos) << message;
  EXPECT_EQ(message.find("layers.0."), std::string::npos) << message;
}

}  // namespace
}  // namespace asterism::checkpoint
