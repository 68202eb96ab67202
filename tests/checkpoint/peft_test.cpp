#include "asterism/checkpoint/peft.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/shards.h"
#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

namespace fs = std::filesystem;
using asterism::testing::error_of;
using asterism::testing::golden;
using asterism::testing::TemporaryFolder;
using Json = nlohmann::json;
using Names = std::set<std::string>;

const char* const kLora = "hf/all_paths/lora";
const std::string kRoot = "base_model.model.";

model::Config all_paths() {
  return model::read_config(golden("hf/all_paths/config.json"));
}

bool says(const std::string& message, const std::string& part) {
  return message.find(part) != std::string::npos;
}

/// Weights without tensors that carry LoRA pairs of rank 2 on the named matrices.
model::Weights with_pairs(const model::Config& config, const Names& names, double scale) {
  model::Weights weights;
  model::for_each_projection(config, weights, [&](const model::TensorSpec& spec, model::Projection& projection) {
    if (!names.contains(spec.name)) return;
    const bool packed = spec.shape.size() == 3;
    const int64_t rows = packed ? spec.shape[0] * 2 : 2;
    projection.lora = ops::LoraPair{.a_RK = at::randn({rows, spec.shape.back()}),
                                    .b_NR = at::randn({spec.shape[packed ? 1 : 0], rows}),
                                    .scale = scale};
  });
  return weights;
}

/// The names of the matrices that have one of these leaves, in the given layers.
Names matrices(const std::vector<std::string>& leaves, const std::vector<int>& layers) {
  Names names;
  for (const int layer : layers) {
    for (const std::string& leaf : leaves) names.insert("model.layers." + std::to_string(layer) + "." + leaf);
  }
  return names;
}

model::LoraConfig rank_two() {
  model::LoraConfig lora;
  lora.rank = 2;
  lora.alpha = 4.0;
  return lora;
}

/// Tensors and config of the golden adapter, to be changed and written elsewhere.
struct Stored {
  std::map<std::string, at::Tensor> tensors;
  Json config;

  Stored() : config(Json::parse(read_text(golden(kLora) / "adapter_config.json"))) {
    const Source source = Source::open(golden(kLora), "adapter_model");
    for (const std::string& name : source.names()) tensors[name] = source.tensor(name).clone();
  }

  void write(const TemporaryFolder& folder) const {
    std::vector<NamedTensor> list;
    for (const auto& [name, tensor] : tensors) list.push_back({name, tensor});
    write_safetensors(folder / "adapter_model.safetensors", list);
    folder.write("adapter_config.json", config.dump());
  }

  std::string error() const {
    const TemporaryFolder folder;
    write(folder);
    return error_of<InputError>([&] { read_adapter(folder.path(), all_paths()); });
  }
};

TEST(Peft, ReadsTheGoldenAdapterByCanonicalNames) {
  const Adapter adapter = read_adapter(golden(kLora), all_paths());
  EXPECT_EQ(adapter.config.lora.rank, 4);
  EXPECT_EQ(adapter.config.lora.scale(), 2.0);
  EXPECT_EQ(adapter.pairs.size(), 50U);
  const Source source = Source::open(golden(kLora), "adapter_model");
  const std::string layer = "model.layers.3.";
  const auto expect_pair = [&](const std::string& matrix, const std::string& path) {
    EXPECT_TRUE(
        at::equal(adapter.pairs.at(layer + matrix).a_RK, source.tensor(kRoot + layer + path + ".lora_A.weight")));
    EXPECT_TRUE(
        at::equal(adapter.pairs.at(layer + matrix).b_NR, source.tensor(kRoot + layer + path + ".lora_B.weight")));
    EXPECT_EQ(adapter.pairs.at(layer + matrix).scale, 2.0);
  };
  expect_pair("self_attn.q_a_proj.weight", "self_attn.q_a_proj");
  expect_pair("self_attn.o_a_proj.weight", "self_attn.o_a_proj");
  expect_pair("mlp.shared_experts.down_proj.weight", "mlp.shared_experts.down_proj");
  expect_pair("mlp.experts.gate_up_proj", "mlp.experts.base_layer");
  expect_pair("mlp.experts.down_proj", "mlp.experts");
}

TEST(Peft, ReexportsTheGoldenAdapterByteForByte) {
  const auto config = all_paths();
  auto weights = read_weights(golden("hf/all_paths"), config).weights;
  const LoadedAdapter adapter = load_adapter(golden(kLora), config, weights);
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, weights, adapter.lora, "");
  EXPECT_EQ(folder.entries(), Names{"out"});
  EXPECT_TRUE(read_text(folder / "out" / "adapter_model.safetensors") ==
              read_text(golden(kLora) / "adapter_model.safetensors"));

  const Json written = Json::parse(read_text(folder / "out" / "adapter_config.json"));
  const Json expected = Json::parse(read_text(golden(kLora) / "adapter_config.json"));
  for (const auto& [key, value] : written.items()) {
    if (key.starts_with("target_")) continue;
    EXPECT_EQ(value, expected.at(key)) << key;
  }
  const auto sorted = [](const Json& list) { return list.get<Names>(); };
  EXPECT_EQ(sorted(written["target_parameters"]), sorted(expected["target_parameters"]));
}

TEST(Peft, TheExpressionMatchesExactlyTheAdaptedLinears) {
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
  ASSERT_EQ(again.pairs.size(), names.size());
  for (const std::string& name : names) EXPECT_TRUE(again.pairs.contains(name)) << name;
}

TEST(Peft, OneAdaptedExpertMatrixIsNamedByTheConfiguration) {
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
    for (const std::string& name : names) EXPECT_TRUE(again.pairs.contains(name)) << name;
  }
}

TEST(Peft, ParametersOfSomeLayersAreNamedInFull) {
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
  ASSERT_EQ(again.pairs.size(), names.size());
  for (const std::string& name : names) EXPECT_TRUE(again.pairs.contains(name)) << name;
}

TEST(Peft, RankStabilisedScaleIsWrittenAndRead) {
  const auto config = all_paths();
  model::LoraConfig lora = rank_two();
  lora.rslora = true;
  lora.alpha = 2.5;
  lora.dropout = 0.25;
  EXPECT_DOUBLE_EQ(lora.scale(), 2.5 / std::sqrt(2.0));
  const TemporaryFolder folder;
  const Names names = matrices({"self_attn.q_a_proj.weight"}, {0});
  write_adapter(folder / "out", config, with_pairs(config, names, lora.scale()), lora, "some/base");
  const Adapter again = read_adapter(folder / "out", config);
  EXPECT_EQ(again.pairs.begin()->second.scale, lora.scale());
  EXPECT_EQ(again.config.lora.dropout, 0.25);
  EXPECT_EQ(again.config.base_model, "some/base");
}

TEST(Peft, DropoutIsNotWrittenForParameters) {
  const auto config = all_paths();
  model::LoraConfig lora = rank_two();
  lora.dropout = 0.25;
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, with_pairs(config, matrices({"self_attn.o_a_proj.weight"}, {0}), lora.scale()),
                lora, "");
  EXPECT_EQ(Json::parse(read_text(folder / "out" / "adapter_config.json"))["lora_dropout"], 0.0);
}

TEST(Peft, TensorsThatFitNoMatrixAreListed) {
  Stored stored;
  const std::string good = kRoot + "model.layers.0.self_attn.q_a_proj";
  stored.tensors[kRoot + "model.layers.7.self_attn.q_a_proj.lora_A.weight"] = at::zeros({4, 64});
  stored.tensors[kRoot + "lm_head.lora_A.weight"] = at::zeros({4, 64});
  stored.tensors["model.layers.0.self_attn.q_a_proj.lora_A.weight"] = at::zeros({4, 64});
  stored.tensors[good + ".lora_magnitude_vector"] = at::zeros({4});
  stored.tensors[good + ".lora_B.weight"] = at::zeros({32, 5});
  stored.tensors.erase(kRoot + "model.layers.1.self_attn.q_b_proj.lora_B.weight");
  const std::string message = stored.error();
  EXPECT_TRUE(says(message, "4 tensors that match no matrix")) << message;
  EXPECT_TRUE(says(message, "layers.7.self_attn.q_a_proj.lora_A.weight")) << message;
  EXPECT_TRUE(says(message, "lm_head.lora_A.weight")) << message;
  EXPECT_TRUE(says(message, "lora_magnitude_vector")) << message;
  EXPECT_TRUE(says(message, "q_a_proj.lora_B.weight: expected [32, 4] with r = 4, found [32, 5]")) << message;
  EXPECT_TRUE(says(message, "1 tensors without their partner")) << message;
}

TEST(Peft, ExpertTensorsThatTheConfigurationDoesNotExplainAreRefused) {
  for (const Json& parameters : {Json(), Json::array({"mlp.experts.gate_up_proj", "mlp.experts.down_proj"})}) {
    Stored stored;
    stored.config["target_parameters"] = parameters;
    stored.tensors.erase(kRoot + "model.layers.0.mlp.experts.base_layer.lora_A.weight");
    stored.tensors.erase(kRoot + "model.layers.0.mlp.experts.base_layer.lora_B.weight");
    EXPECT_TRUE(says(stored.error(), "model.layers.0.mlp.experts.lora_A.weight"));
  }
}

TEST(Peft, ARankThatTheTensorsDoNotHaveIsRefused) {
  Stored stored;
  stored.config["r"] = 8;
  EXPECT_TRUE(says(stored.error(), "100 tensors of the wrong shape"));
}

TEST(Peft, FeaturesThatChangeTheResultAreRefusedByName) {
  const std::vector<std::pair<std::string, Json>> features = {
      {"peft_type", "IA3"},
      {"use_dora", true},
      {"bias", "all"},
      {"lora_bias", true},
      {"modules_to_save", Json::array({"lm_head"})},
      {"rank_pattern", {{"q_a_proj", 8}}},
      {"alpha_pattern", {{"q_a_proj", 8}}},
      {"alora_invocation_tokens", Json::array({1, 2})},
      {"trainable_token_indices", Json::array({1})},
      {"layer_replication", Json::array({Json::array({0, 1})})},
      {"fan_in_fan_out", true},
      {"init_lora_weights", "pissa"},
      {"use_qalora", true},
      {"a_feature_of_tomorrow", 3},
      {"r", 0},
      {"r", "4"},
      {"lora_alpha", nullptr},
      {"use_rslora", "yes"},
      {"lora_dropout", 1.0},
      {"target_parameters", "mlp.experts.down_proj"},
  };
  for (const auto& [key, value] : features) {
    Stored stored;
    stored.config[key] = value;
    EXPECT_TRUE(says(stored.error(), "adapter_config.json: " + key + ":")) << key << " " << value;
  }
}

TEST(Peft, AFailedWriteLeavesNothing) {
  const auto config = all_paths();
  const auto weights = with_pairs(config, matrices({"self_attn.q_a_proj.weight"}, {0}), 2.0);
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THROW(write_adapter(folder / "file" / "out", config, weights, rank_two(), ""), RunError);
  model::LoraConfig other = rank_two();
  other.rank = 3;
  EXPECT_THROW(write_adapter(folder / "out", config, weights, other, ""), c10::Error);
  EXPECT_THROW(write_adapter(folder / "out", config, model::Weights{}, rank_two(), ""), c10::Error);
  EXPECT_EQ(folder.entries(), Names{"file"});
}

TEST(Peft, AnExistingFolderIsReplacedUnlessItIsToBeKept) {
  const auto config = all_paths();
  const auto weights = with_pairs(config, matrices({"self_attn.q_a_proj.weight"}, {0}), 2.0);
  const TemporaryFolder folder;
  fs::create_directory(folder / "out");
  folder.write("out/old", "");
  EXPECT_THROW(write_adapter(folder / "out", config, weights, rank_two(), "", /*replace=*/false), InputError);
  EXPECT_TRUE(fs::exists(folder / "out" / "old"));
  write_adapter(folder / "out", config, weights, rank_two(), "");
  EXPECT_FALSE(fs::exists(folder / "out" / "old"));
}

TEST(Peft, LoadedPairsHaveTheWidthOfTheirWeights) {
  const auto config = all_paths();
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    auto weights = read_weights(golden("hf/all_paths"), config, {.matrix_dtype = type}).weights;
    const LoadedAdapter loaded = load_adapter(golden(kLora), config, weights);
    EXPECT_EQ(loaded.paths.size(), 50U);
    EXPECT_EQ(loaded.lora.targets, loaded.paths);
    const auto expected = type == at::kDouble ? at::kDouble : at::kFloat;
    EXPECT_EQ(weights.layers[2].moe.moe.down.lora->a_RK.scalar_type(), expected);
    EXPECT_FALSE(weights.layers[2].moe.moe.gate.lora);
  }
}

TEST(Peft, TensorNamesAreThoseOfTheFile) {
  const auto config = all_paths();
  model::Weights weights;
  load_adapter(golden(kLora), config, weights);
  const auto names = adapter_tensor_names(config, weights);
  Names stored;
  for (const auto& [name, file_name] : names) stored.insert(file_name);
  const auto expected = Source::open(golden(kLora), "adapter_model").names();
  EXPECT_EQ(stored, Names(expected.begin(), expected.end()));
  EXPECT_EQ(names.at("model.layers.0.mlp.experts.gate_up_proj.lora_B.weight"),
            kRoot + "model.layers.0.mlp.experts.base_layer.lora_B.weight");
}

}  // namespace
}  // namespace asterism::checkpoint
