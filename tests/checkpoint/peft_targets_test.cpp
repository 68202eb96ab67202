#include "asterism/checkpoint/peft_targets.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/checkpoint/adapter_files.h"

namespace asterism::checkpoint {
namespace {

using namespace adapter_files;

TEST(PeftTargets, TheExpressionMatchesExactlyTheAdaptedLinears) {
  auto config = all_paths();
  config.num_mtp_layers = 1;
  Names names = matrices({"self_attn.q_a_proj.weight"}, {0, 1, 2, 3, 4});
  names.merge(matrices({"self_attn.kv_proj.weight", "mlp.shared_experts.up_proj.weight"}, {1, 3}));
  names.merge(matrices({"self_attn.compressor.kv_proj.weight"}, {1, 2, 3, 4}));
  names.insert("mtp.0.e_proj.weight");
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, with_pairs(config, names, 2.0), rank_two(), "");
  const Json written = Json::parse(read_text(folder / "out" / "adapter_config.json"));
  const std::regex expression(written["target_modules"].get<std::string>());
  model::Weights weights;
  model::for_each_projection(config, weights, [&](const model::TensorSpec& spec, model::Projection&) {
    const std::string module = spec.name.substr(0, spec.name.rfind('.'));
    if (spec.name.ends_with(".weight")) {
      EXPECT_EQ(std::regex_match(module, expression), names.contains(spec.name)) << module;
    }
  });
  EXPECT_TRUE(written["target_parameters"].is_null());

  const Adapter again = read_adapter(folder / "out", config);
  ASSERT_EQ(again.tensors.pairs.size(), names.size());
  for (const std::string& name : names) EXPECT_TRUE(again.tensors.pairs.contains(name)) << name;
}

TEST(PeftTargets, OneAdaptedExpertMatrixIsNamedByTheConfiguration) {
  const auto config = all_paths();
  for (const std::string leaf : {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}) {
    const Names names = matrices({leaf}, {0, 1, 2, 3, 4});
    const TemporaryFolder folder;
    write_adapter(folder / "out", config, with_pairs(config, names, 2.0), rank_two(), "");
    EXPECT_TRUE(
        Source::open(folder / "out", "adapter_model").contains(kRoot + "model.layers.0.mlp.experts.lora_A.weight"));
    const Json written = Json::parse(read_text(folder / "out" / "adapter_config.json"));
    EXPECT_EQ(written["target_parameters"], Json::array({leaf}));
    EXPECT_EQ(written["target_modules"], Json::array());
    const Adapter again = read_adapter(folder / "out", config);
    for (const std::string& name : names) EXPECT_TRUE(again.tensors.pairs.contains(name)) << name;
  }
}

TEST(PeftTargets, ParametersOfSomeLayersAreNamedInFull) {
  const auto config = all_paths();
  Names names = matrices({"mlp.experts.gate_up_proj", "self_attn.o_a_proj.weight"}, {0, 1, 2, 3, 4});
  names.merge(matrices({"mlp.experts.down_proj", "mlp.gate.weight"}, {2, 4}));
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, with_pairs(config, names, 2.0), rank_two(), "");
  const Json written = Json::parse(read_text(folder / "out" / "adapter_config.json"));
  EXPECT_EQ(written["target_parameters"].get<Names>(),
            (Names{"mlp.experts.gate_up_proj", "self_attn.o_a_proj.weight", "model.layers.2.mlp.experts.down_proj",
                   "model.layers.4.mlp.experts.down_proj", "model.layers.2.mlp.gate.weight",
                   "model.layers.4.mlp.gate.weight"}));
  const Source source = Source::open(folder / "out", "adapter_model");
  EXPECT_TRUE(source.contains(kRoot + "model.layers.2.mlp.experts.base_layer.lora_A.weight"));
  EXPECT_FALSE(source.contains(kRoot + "model.layers.1.mlp.experts.base_layer.lora_A.weight"));
  const Adapter again = read_adapter(folder / "out", config);
  ASSERT_EQ(again.tensors.pairs.size(), names.size());
  for (const std::string& name : names) EXPECT_TRUE(again.tensors.pairs.contains(name)) << name;
}

TEST(PeftTargets, PairsOfOtherRanksAndScalesGetPatterns) {
  const auto config = all_paths();
  const Names names =
      matrices({"self_attn.q_a_proj.weight", "self_attn.o_a_proj.weight", "mlp.experts.down_proj"}, {1, 2});
  auto weights = with_pairs(config, names, 2.0);
  auto& q_a = weights.layers[1].attention.attention.q_a_proj;
  q_a.lora = ops::LoraPair{.a_RK = at::randn({3, 64}), .b_NR = at::randn({32, 3}), .scale = 5.0 / 3.0};
  weights.layers[2].attention.attention.o_a_proj.lora->scale = 0.5;
  weights.layers[2].moe.moe.down.lora->scale = 7.0;
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, weights, rank_two(), "");
  const Json written = Json::parse(read_text(folder / "out" / "adapter_config.json"));
  EXPECT_EQ(written["rank_pattern"], Json({{"model\\.layers\\.1\\.self_attn\\.q_a_proj", 3}}));
  EXPECT_EQ(written["alpha_pattern"], Json({{"model\\.layers\\.1\\.self_attn\\.q_a_proj", 5.0},
                                            {"model\\.layers\\.2\\.mlp\\.experts\\.down_proj", 14.0},
                                            {"model\\.layers\\.2\\.self_attn\\.o_a_proj\\.weight", 1.0}}));
  const Adapter again = read_adapter(folder / "out", config);
  ASSERT_EQ(again.tensors.pairs.size(), names.size());
  EXPECT_EQ(again.tensors.pairs.at("model.layers.1.self_attn.q_a_proj.weight").scale, 5.0 / 3.0);
  EXPECT_EQ(again.tensors.pairs.at("model.layers.1.self_attn.o_a_proj.weight").scale, 2.0);
  EXPECT_EQ(again.tensors.pairs.at("model.layers.2.self_attn.o_a_proj.weight").scale, 0.5);
  EXPECT_EQ(again.tensors.pairs.at("model.layers.2.mlp.experts.down_proj").scale, 7.0);
}

TEST(PeftTargets, DropoutIsNotWrittenForParameters) {
  const auto config = all_paths();
  model::LoraConfig lora = rank_two();
  lora.dropout = 0.25;
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, with_pairs(config, matrices({"self_attn.o_a_proj.weight"}, {0}), lora.scale()),
                lora, "");
  EXPECT_EQ(Json::parse(read_text(folder / "out" / "adapter_config.json"))["lora_dropout"], 0.0);
}

}  // namespace
}  // namespace asterism::checkpoint
