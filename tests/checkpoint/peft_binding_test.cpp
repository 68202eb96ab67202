#include "asterism/checkpoint/peft_binding.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/checkpoint/adapter_files.h"

namespace asterism::checkpoint {
namespace {

using namespace adapter_files;

TEST(PeftBinding, SavedModulesMustBeCompleteAndNamed) {
  StoredAdapter stored;
  stored.config["modules_to_save"] = Json::array({"lm_head", "layers.2.attn_hc"});
  stored.tensors[kRoot + "lm_head.weight"] = at::zeros({512, 63});
  stored.tensors[kRoot + "model.layers.2.attn_hc.fn"] = at::zeros({24, 256}, at::kLong);
  stored.tensors[kRoot + "model.layers.2.attn_hc.base"] = at::zeros({24});
  stored.tensors[kRoot + "model.layers.2.ffn_hc.base"] = at::zeros({24});
  const std::string message = stored.error();
  EXPECT_TRUE(says(message, "lm_head.weight: expected [512, 64], found [512, 63]")) << message;
  EXPECT_TRUE(says(message, "layers.2.attn_hc.fn I64")) << message;
  EXPECT_TRUE(says(message, "1 missing tensors of modules_to_save")) << message;
  EXPECT_TRUE(says(message, "layers.2.attn_hc.scale")) << message;
  EXPECT_TRUE(says(message, "1 tensors that match no matrix")) << message;
  EXPECT_TRUE(says(message, "layers.2.ffn_hc.base")) << message;
  stored.config["modules_to_save"] = Json::array({"lm_heat"});
  EXPECT_TRUE(says(stored.error(), "did you mean \"lm_head\"?"));
}

TEST(PeftBinding, PairsOfSingleExpertsComeBackPacked) {
  const auto config = all_paths();
  const Names names =
      matrices({"mlp.experts.gate_up_proj", "mlp.experts.down_proj", "self_attn.q_a_proj.weight"}, {1, 2});
  const auto weights = with_pairs(config, names, 2.0);
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, weights, rank_two(), "", /*replace=*/true, AdapterLayout::kPerExpert);
  const Source source = Source::open(folder / "out", "adapter_model");
  const int64_t width = config.expert_width, hidden = config.hidden_size;
  const std::string expert = kRoot + "model.layers.2.mlp.experts.5.";
  EXPECT_EQ(source.info(expert + "up_proj.lora_A.weight").shape, (std::vector<int64_t>{2, hidden}));
  EXPECT_EQ(source.info(expert + "up_proj.lora_B.weight").shape, (std::vector<int64_t>{width, 2}));
  EXPECT_EQ(source.info(expert + "down_proj.lora_B.weight").shape, (std::vector<int64_t>{hidden, 2}));
  const Json written = Json::parse(read_text(folder / "out" / "adapter_config.json"));
  EXPECT_TRUE(written["target_parameters"].is_null());
  const std::regex expression(written["target_modules"].get<std::string>());
  EXPECT_TRUE(std::regex_match("model.layers.1.mlp.experts.7.gate_proj", expression));
  EXPECT_FALSE(std::regex_match("model.layers.3.mlp.experts.7.gate_proj", expression));
  EXPECT_FALSE(std::regex_match("model.layers.1.mlp.shared_experts.gate_proj", expression));

  const Adapter again = read_adapter(folder / "out", config);
  model::Weights handles = weights;
  model::for_each_projection(config, handles, [&](const model::TensorSpec& spec, model::Projection& projection) {
    if (!projection.lora) return;
    EXPECT_TRUE(at::equal(again.tensors.pairs.at(spec.name).a_RK, projection.lora->a_RK)) << spec.name;
    EXPECT_TRUE(at::equal(again.tensors.pairs.at(spec.name).b_NR, projection.lora->b_NR)) << spec.name;
  });
}

TEST(PeftBinding, PairsOfSingleExpertsMustAllBeThereAndShareTheirInput) {
  const auto config = all_paths();
  const auto weights = with_pairs(config, matrices({"mlp.experts.gate_up_proj"}, {1}), 2.0);
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, weights, rank_two(), "", /*replace=*/true, AdapterLayout::kPerExpert);
  StoredAdapter stored;
  stored.config = Json::parse(read_text(folder / "out" / "adapter_config.json"));
  stored.tensors.clear();
  const Source source = Source::open(folder / "out", "adapter_model");
  for (const std::string& name : source.names()) stored.tensors[name] = source.tensor(name).clone();
  const std::string experts = kRoot + "model.layers.1.mlp.experts.";
  stored.tensors[experts + "3.up_proj.lora_A.weight"] += 1.0;
  stored.tensors[experts + "8.up_proj.lora_A.weight"] = at::zeros({2, 64});  // there are 8 experts
  stored.tensors.erase(experts + "6.gate_proj.lora_A.weight");
  stored.tensors.erase(experts + "6.gate_proj.lora_B.weight");
  stored.tensors.erase(experts + "7.gate_proj.lora_B.weight");
  const std::string message = stored.error();
  EXPECT_TRUE(says(message, "1 experts whose gate_proj and up_proj have different lora_A")) << message;
  EXPECT_TRUE(says(message, "experts.3.up_proj.lora_A.weight")) << message;
  EXPECT_TRUE(says(message, "1 matrices of experts without a pair")) << message;
  EXPECT_TRUE(says(message, "1 tensors without their partner")) << message;
  EXPECT_TRUE(says(message, "1 tensors that match no matrix")) << message;
}

TEST(PeftBinding, TensorsThatFitNoMatrixAreListed) {
  StoredAdapter stored;
  const std::string good = kRoot + "model.layers.0.self_attn.q_a_proj";
  stored.tensors[kRoot + "model.layers.7.self_attn.q_a_proj.lora_A.weight"] = at::zeros({4, 64});
  stored.tensors[kRoot + "lm_head.lora_A.weight"] = at::zeros({4, 64});
  stored.tensors[kRoot + kRoot + "model.layers.0.self_attn.q_a_proj.lora_A.weight"] = at::zeros({4, 64});
  stored.tensors["model.layers.0.self_attn.q_a_proj.lora_A.weight"] = at::zeros({4, 64});
  stored.tensors[good + ".lora_magnitude_vector"] = at::zeros({4});
  stored.tensors[good + ".lora_B.weight"] = at::zeros({32, 5});
  stored.tensors.erase(kRoot + "model.layers.1.self_attn.q_b_proj.lora_B.weight");
  const std::string message = stored.error();
  EXPECT_TRUE(says(message, "5 tensors that match no matrix")) << message;
  EXPECT_TRUE(says(message, "layers.7.self_attn.q_a_proj.lora_A.weight")) << message;
  EXPECT_TRUE(says(message, "lm_head.lora_A.weight")) << message;
  EXPECT_TRUE(says(message, "lora_magnitude_vector")) << message;
  EXPECT_TRUE(says(message, "q_a_proj.lora_B.weight: expected [32, 4] with r = 4, found [32, 5]")) << message;
  EXPECT_TRUE(says(message, "1 tensors without their partner")) << message;
}

TEST(PeftBinding, ExpertTensorsThatTheConfigurationDoesNotExplainAreRefused) {
  for (const Json& parameters : {Json(), Json::array({"mlp.experts.gate_up_proj", "mlp.experts.down_proj"})}) {
    StoredAdapter stored;
    stored.config["target_parameters"] = parameters;
    stored.tensors.erase(kRoot + "model.layers.0.mlp.experts.base_layer.lora_A.weight");
    stored.tensors.erase(kRoot + "model.layers.0.mlp.experts.base_layer.lora_B.weight");
    EXPECT_TRUE(says(stored.error(), "model.layers.0.mlp.experts.lora_A.weight"));
  }
}

TEST(PeftBinding, ARankThatTheTensorsDoNotHaveIsRefused) {
  StoredAdapter stored;
  stored.config["r"] = 8;
  EXPECT_TRUE(says(stored.error(), "100 tensors of the wrong shape"));
}

// PEFT 0.19 wrote A of down_proj as [E r, out]: with other shapes where the matrix is not square. gate_up_proj of this
// model is square, so only the version tells.
TEST(PeftBinding, SquareExpertsOfOlderVersionsAreRefused) {
  for (const Json& version : {Json("0.19.0"), Json("0.9.9"), Json("dev"), Json()}) {
    StoredAdapter stored;
    stored.config["peft_version"] = version;
    const std::string message = stored.error();
    EXPECT_TRUE(says(message, "5 expert matrices that older versions of PEFT lay out otherwise")) << message;
    EXPECT_TRUE(says(message, "experts.base_layer.lora_A.weight: expected peft_version 0.21 or later")) << message;
  }
  for (const char* version : {"0.21.0", "0.22.0.dev0", "1.0.0"}) {
    StoredAdapter stored;
    stored.config["peft_version"] = version;
    const TemporaryFolder folder;
    stored.write(folder);
    EXPECT_EQ(read_adapter(folder.path(), all_paths()).tensors.pairs.size(), 50U) << version;
  }
  StoredAdapter rectangular;  // as 0.19 wrote it
  const std::string down = kRoot + "model.layers.1.mlp.experts.";
  rectangular.tensors[down + "lora_A.weight"] = at::zeros({32, 64});
  rectangular.tensors[down + "lora_B.weight"] = at::zeros({32, 32});
  EXPECT_TRUE(says(rectangular.error(), "2 tensors of the wrong shape"));
}

TEST(PeftBinding, FeaturesThatChangeTheResultAreRefusedByName) {
  const std::vector<std::pair<std::string, Json>> features = {
      {"peft_type", "IA3"},
      {"use_dora", true},
      {"bias", "all"},
      {"lora_bias", true},
      {"modules_to_save", "lm_head"},
      {"rank_pattern", {{"q_a_proj", 0}}},
      {"rank_pattern", {{"q_a_proj", 1.5}}},
      {"rank_pattern", {{"q_a_(proj", 8}}},
      {"alpha_pattern", {{"q_a_proj", "8"}}},
      {"alpha_pattern", Json::array({"q_a_proj"})},
      {"alora_invocation_tokens", Json::array({1, 2})},
      {"trainable_token_indices", Json::array({1})},
      {"layer_replication", Json::array({Json::array({0, 1})})},
      {"fan_in_fan_out", true},
      {"init_lora_weights", "pissa"},
      {"use_qalora", true},
      {"a_feature_of_tomorrow", 3},
      {"rank_pattern", {{"q_a_proj", 1'000'001}}},
      {"rank_pattern", {{std::string(501, 'x'), 8}}},
      {"rank_pattern", {{"(a)\\1", 8}}},
      {"r", 0},
      {"r", 1'000'001},
      {"r", uint64_t{1} << 63},
      {"r", "4"},
      {"lora_alpha", nullptr},
      {"use_rslora", "yes"},
      {"lora_dropout", 1.0},
      {"target_parameters", "mlp.experts.down_proj"},
  };
  for (const auto& [key, value] : features) {
    StoredAdapter stored;
    stored.config[key] = value;
    EXPECT_TRUE(says(stored.error(), "adapter_config.json: " + key + ":")) << key << " " << value;
  }
}

TEST(PeftBinding, APatternThatWouldBacktrackForEverIsMatchedAtOnce) {
  for (const char* pattern : {"(a*)*b", "(.*)*x(.*)*y(.*)*z", "(.|..)*(.|..)*!"}) {
    StoredAdapter stored;
    stored.config["rank_pattern"] = {{pattern, 8}};
    const TemporaryFolder folder;
    stored.write(folder);
    EXPECT_EQ(read_adapter(folder.path(), all_paths()).config.rank_pattern.size(), 1U) << pattern;
  }
}

// Experts one by one whose matrices are much larger by the rank than what the file holds: nothing may be reserved.
TEST(PeftBinding, ARankOfAMillionCostsNoMemory) {
  const TemporaryFolder folder;
  auto weights = read_weights(golden("hf/all_paths"), all_paths()).weights;
  const LoadedAdapter adapter = load_adapter(golden(kLora), all_paths(), weights);
  write_adapter(folder / "single", all_paths(), weights, adapter.lora, "", false, AdapterLayout::kPerExpert);
  Json config = Json::parse(read_text(folder / "single" / "adapter_config.json"));
  config["r"] = 1'000'000;
  config["rank_pattern"] = Json::object();
  folder.write("single/adapter_config.json", config.dump());
  const std::string message = error_of<InputError>([&] { read_adapter(folder / "single", all_paths()); });
  EXPECT_TRUE(says(message, "tensors of the wrong shape")) << message;
  EXPECT_TRUE(says(message, "with r = 1000000")) << message;
}

}  // namespace
}  // namespace asterism::checkpoint
