#include "asterism/checkpoint/peft_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::golden;
using asterism::testing::TemporaryFolder;

AdapterConfig some_config() {
  AdapterConfig config;
  config.lora.rank = 4;
  config.lora.alpha = 10.0;
  config.target_modules = "(model\\.layers\\.\\d+\\.self_attn\\.q_a_proj)";
  return config;
}

TEST(PeftConfig, ReadsTheGoldenFile) {
  const AdapterConfig config = read_adapter_config(golden("hf/all_paths/lora/adapter_config.json"));
  EXPECT_EQ(config.lora.rank, 4);
  EXPECT_EQ(config.lora.alpha, 8.0);
  EXPECT_FALSE(config.lora.rslora);
  EXPECT_FALSE(config.base_model);
  EXPECT_EQ(config.target_parameters.size(), 3U);
}

TEST(PeftConfig, ParametersMatchAsAWholeOrByTheirEnd) {
  AdapterConfig config;
  config.target_parameters = {"experts.down_proj", "model.layers.1.mlp.experts.gate_up_proj"};
  EXPECT_TRUE(config.targets_parameter("model.layers.0.mlp.experts.down_proj"));
  EXPECT_TRUE(config.targets_parameter("model.layers.1.mlp.experts.gate_up_proj"));
  EXPECT_FALSE(config.targets_parameter("model.layers.0.mlp.experts.gate_up_proj"));
  EXPECT_FALSE(config.targets_parameter("model.layers.0.mlp.shared_experts.down_proj")) << "no end within a word";
}

TEST(PeftConfig, WrittenTextReadsBack) {
  const TemporaryFolder folder;
  AdapterConfig config = some_config();
  config.lora.rslora = true;
  config.lora.alpha = 2.5;
  config.lora.dropout = 0.125;
  config.base_model = "base";
  const AdapterConfig again = read_adapter_config(folder.write("adapter_config.json", adapter_config_text(config)));
  EXPECT_EQ(again.lora.rank, 4);
  EXPECT_EQ(again.lora.alpha, 2.5);
  EXPECT_TRUE(again.lora.rslora);
  EXPECT_EQ(again.lora.dropout, 0.125);
  EXPECT_EQ(again.base_model, "base");
}

TEST(PeftConfig, PatternsMatchAWholePathOrItsEnd) {
  AdapterConfig config = some_config();
  config.rank_pattern = {{"q_b_proj", 2}, {"layers\\.1\\..*proj", 3}};
  config.alpha_pattern = {{"^model\\.layers\\.1\\.self_attn\\.kv_proj", 5.0}};
  EXPECT_EQ(config.lora_of("model.layers.1.self_attn.q_b_proj").rank, 2) << "the first of two";
  EXPECT_EQ(config.lora_of("model.layers.1.self_attn.kv_proj").rank, 3);
  EXPECT_EQ(config.lora_of("model.layers.1.self_attn.kv_proj").alpha, 5.0);
  EXPECT_EQ(config.lora_of("model.layers.0.self_attn.kv_proj").rank, 4);
  EXPECT_EQ(config.lora_of("model.layers.0.self_attn.kv_proj").alpha, 10.0);
  EXPECT_EQ(config.lora_of("model.layers.11.mlp.xq_b_proj").rank, 4) << "no end within a word";
}

TEST(PeftConfig, PatternPathsAreThoseThatPeftMatches) {
  EXPECT_EQ(pattern_path("model.layers.0.self_attn.q_a_proj.weight"), "model.layers.0.self_attn.q_a_proj");
  EXPECT_EQ(pattern_path("model.layers.0.self_attn.o_a_proj.weight"), "model.layers.0.self_attn.o_a_proj.weight");
  EXPECT_EQ(pattern_path("model.layers.0.mlp.experts.down_proj"), "model.layers.0.mlp.experts.down_proj");
}

TEST(PeftConfig, PatternsAndSavedModulesReadBack) {
  const TemporaryFolder folder;
  AdapterConfig config = some_config();
  config.rank_pattern = {{"a", 2}, {"b", 3}};
  config.alpha_pattern = {{"c", 0.5}};
  config.lora.modules_to_save = {"lm_head"};
  const AdapterConfig again = read_adapter_config(folder.write("adapter_config.json", adapter_config_text(config)));
  EXPECT_EQ(again.rank_pattern, config.rank_pattern);
  EXPECT_EQ(again.alpha_pattern, config.alpha_pattern);
  EXPECT_EQ(again.lora.modules_to_save, config.lora.modules_to_save);
}

TEST(PeftConfig, AWholeAlphaIsWrittenAsAnInteger) {
  const auto json = nlohmann::json::parse(adapter_config_text(some_config()));
  EXPECT_TRUE(json["lora_alpha"].is_number_integer());
  EXPECT_TRUE(json["target_parameters"].is_null());
}

TEST(PeftConfig, ADuplicateOrMissingKeyIsRefused) {
  const TemporaryFolder folder;
  for (const char* content : {R"({"peft_type":"LORA","r":4,"r":8,"lora_alpha":8})", R"({"peft_type":"LORA","r":4})",
                              R"({"r":4,"lora_alpha":8})", "[]"}) {
    EXPECT_THROW(read_adapter_config(folder.write("adapter_config.json", content)), InputError) << content;
  }
}

}  // namespace
}  // namespace asterism::checkpoint
