#include "asterism/checkpoint/peft.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/checkpoint/adapter_files.h"

namespace asterism::checkpoint {
namespace {

using namespace adapter_files;
namespace fs = std::filesystem;

TEST(Peft, ReadsTheGoldenAdapterByCanonicalNames) {
  const Adapter adapter = read_adapter(golden(kLora), all_paths());
  EXPECT_EQ(adapter.config.lora.rank, 4);
  EXPECT_EQ(adapter.config.lora.scale(), 2.0);
  EXPECT_EQ(adapter.tensors.pairs.size(), 50U);
  const Source source = Source::open(golden(kLora), "adapter_model");
  const std::string layer = "model.layers.3.";
  const auto expect_pair = [&](const std::string& matrix, const std::string& path) {
    EXPECT_TRUE(at::equal(adapter.tensors.pairs.at(layer + matrix).a_RK,
                          source.tensor(kRoot + layer + path + ".lora_A.weight")));
    EXPECT_TRUE(at::equal(adapter.tensors.pairs.at(layer + matrix).b_NR,
                          source.tensor(kRoot + layer + path + ".lora_B.weight")));
    EXPECT_EQ(adapter.tensors.pairs.at(layer + matrix).scale, 2.0);
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

TEST(Peft, AFileHoldsThePairsAndNothingElse) {  // TC24: a frozen base in the file is a thousand times its size
  const auto config = all_paths();
  auto weights = read_weights(golden("hf/all_paths"), config).weights;
  const LoadedAdapter adapter = load_adapter(golden(kLora), config, weights);
  uint64_t payload = 0;
  model::for_each_projection(config, weights, [&](const model::TensorSpec&, model::Projection& projection) {
    if (projection.lora) payload += projection.lora->a_RK.nbytes() + projection.lora->b_NR.nbytes();
  });
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, weights, adapter.lora, "");
  const uint64_t bytes = fs::file_size(folder / "out" / "adapter_model.safetensors");
  EXPECT_GT(payload, 100'000U);
  EXPECT_GT(bytes, payload);
  // The header takes some 150 bytes for each of the two tensors of a pair.
  EXPECT_LT(bytes, payload + 2 * 50 * 200);
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
  EXPECT_EQ(again.tensors.pairs.begin()->second.scale, lora.scale());
  EXPECT_EQ(again.config.lora.dropout, 0.25);
  EXPECT_EQ(again.config.base_model, "some/base");
}

TEST(Peft, SavedModulesReplaceTheTensorsOfTheModel) {
  const auto config = all_paths();
  auto weights = read_weights(golden("hf/all_paths"), config).weights;
  load_adapter(golden(kLora), config, weights);
  weights.lm_head = weights.lm_head * 2.0;
  weights.layers[2].moe.moe.bias = weights.layers[2].moe.moe.bias + 1.0;
  model::LoraConfig lora;
  lora.rank = 4;
  lora.alpha = 8.0;
  lora.modules_to_save = {"lm_head", "mlp.gate"};
  const TemporaryFolder folder;
  write_adapter(folder / "out", config, weights, lora, "");
  const Source source = Source::open(folder / "out", "adapter_model");
  EXPECT_TRUE(source.contains(kRoot + "model.layers.0.mlp.gate.tid2eid"));
  EXPECT_TRUE(source.contains(kRoot + "model.layers.2.mlp.gate.e_score_correction_bias"));

  auto fresh = read_weights(golden("hf/all_paths"), config).weights;
  const LoadedAdapter loaded = load_adapter(folder / "out", config, fresh);
  EXPECT_EQ(loaded.lora.modules_to_save, lora.modules_to_save);
  EXPECT_TRUE(at::equal(fresh.lm_head, weights.lm_head));
  EXPECT_TRUE(at::equal(fresh.layers[2].moe.moe.bias, weights.layers[2].moe.moe.bias));
  EXPECT_TRUE(at::equal(fresh.layers[0].moe.moe.tid2eid, weights.layers[0].moe.moe.tid2eid));
  EXPECT_EQ(loaded.paths.size(), 50U);
}

TEST(Peft, AFailedWriteLeavesNothing) {
  const auto config = all_paths();
  const auto weights = with_pairs(config, matrices({"self_attn.q_a_proj.weight"}, {0}), 2.0);
  const TemporaryFolder folder;
  folder.write("file", "");
  EXPECT_THROW(write_adapter(folder / "file" / "out", config, weights, rank_two(), ""), RunError);
  model::Weights torn = weights;
  torn.layers[0].attention.attention.q_a_proj.lora->a_RK = at::randn({3, 64});
  EXPECT_THROW(write_adapter(folder / "out", config, torn, rank_two(), ""), c10::Error);
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
