#include "asterism/checkpoint/names.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "asterism/checkpoint/safetensors.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::golden;
using Matrix = ExpertPart::Matrix;

std::set<std::string> names_in(const std::string& file) {
  std::set<std::string> names;
  const auto opened = SafetensorsFile::open(golden(file));
  for (const TensorInfo& info : opened.tensors()) names.insert(info.name);
  return names;
}

std::string spell(const CanonicalName& name, Spelling spelling) {
  return name.part ? stored_part_name(name, spelling) : stored_name(name.tensor, spelling);
}

class GoldenNames : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenNames, SavePretrainedNamesMapToModuleNamesAndBack) {
  const std::string folder = std::string("hf/") + GetParam();
  std::set<std::string> tensors;
  for (const std::string& name : names_in(folder + "/model.safetensors")) {
    const auto canonical = canonical_name(name);
    ASSERT_TRUE(canonical) << name;
    EXPECT_EQ(spell(*canonical, Spelling::kSavePretrained), name);
    EXPECT_EQ(canonical_name(spell(*canonical, Spelling::kNative)), canonical) << name;
    tensors.insert(canonical->tensor);
  }
  for (const std::string& name : tensors) {
    EXPECT_EQ(canonical_name(name), (CanonicalName{name, std::nullopt})) << "canonical names stay";
    EXPECT_EQ(stored_name(name, Spelling::kModule), name);
  }
  const std::string modules = folder + "/hf_names/model.safetensors";
  if (std::filesystem::exists(golden(modules))) {
    EXPECT_EQ(tensors, names_in(modules));
  }
}

INSTANTIATE_TEST_SUITE_P(Names, GoldenNames, ::testing::Values("hf_unit", "odd_dims", "all_paths"),
                         [](const auto& info) { return info.param; });

TEST(Names, NativeNamesMayHaveTheModelPrefix) {
  const std::pair<const char*, const char*> names[] = {
      {"model.embed.weight", "model.embed_tokens.weight"},
      {"model.head.weight", "lm_head.weight"},
      {"model.hc_head_scale", "model.hc_head.hc_scale"},
      {"model.layers.3.attn.wq_a.weight", "model.layers.3.self_attn.q_a_proj.weight"},
      {"model.mtp.0.e_proj.weight", "mtp.0.e_proj.weight"},
      {"model.mtp.0.attn.wkv.weight", "mtp.0.self_attn.kv_proj.weight"},
  };
  for (const auto& [stored, canonical] : names) {
    ASSERT_TRUE(canonical_name(stored)) << stored;
    EXPECT_EQ(canonical_name(stored)->tensor, canonical);
  }
  EXPECT_FALSE(canonical_name("model.model.embed.weight"));
  EXPECT_FALSE(canonical_name("model.layers.3.attn.wq-a.weight"));
  EXPECT_FALSE(canonical_name("model.layers.3.attn.wq_a.scale"));
}

TEST(Names, TheSpellingOfACheckpointIsTold) {
  EXPECT_EQ(describe_spelling({"embed.weight", "layers.0.attn.wq_a.weight"}), "DeepSeek's names");
  EXPECT_EQ(describe_spelling({"model.layers.0.ffn.gate.weight"}), "DeepSeek's names below model.");
  EXPECT_EQ(describe_spelling({"mtp.0.attn.wkv.weight", "model.layers.0.self_attn.sinks"}),
            "Hugging Face's module names");
}

TEST(Names, NativeMtpNamesMapToLayerLeavesAndBack) {
  std::set<std::string> tensors;
  for (const std::string& name : names_in("ref/all_paths/mtp.weights.safetensors")) {
    const auto canonical = canonical_name(name);
    ASSERT_TRUE(canonical) << name;
    EXPECT_EQ(spell(*canonical, Spelling::kNative), name);
    EXPECT_EQ(spell(*canonical, Spelling::kSavePretrained), name);
    EXPECT_EQ(canonical_name(canonical->tensor), (CanonicalName{canonical->tensor, std::nullopt}));
    tensors.insert(canonical->tensor);
  }
  for (const char* name : {"mtp.0.self_attn.q_a_proj.weight", "mtp.0.self_attn.kv_norm.weight", "mtp.0.hc_head.hc_fn",
                           "mtp.0.enorm.weight", "mtp.0.e_proj.weight", "mtp.0.norm.weight",
                           "mtp.0.mlp.experts.gate_up_proj", "mtp.0.mlp.gate.e_score_correction_bias"}) {
    EXPECT_TRUE(tensors.contains(name)) << name;
  }
}

TEST(Names, NativeSpellingDropsTheModelPrefix) {
  EXPECT_EQ(stored_name("lm_head.weight", Spelling::kNative), "head.weight");
  EXPECT_EQ(stored_name("model.embed_tokens.weight", Spelling::kNative), "embed.weight");
  EXPECT_EQ(stored_name("model.hc_head.hc_scale", Spelling::kNative), "hc_head_scale");
  EXPECT_EQ(stored_name("model.layers.12.self_attn.kv_norm.weight", Spelling::kNative),
            "layers.12.attn.kv_norm.weight");
  EXPECT_EQ(stored_name("model.layers.12.self_attn.kv_norm.weight", Spelling::kSavePretrained),
            "model.layers.12.attn.norm.weight");
}

TEST(Names, ExpertsBecomePartsOfPackedTensors) {
  const std::string gate_up = "model.layers.3.mlp.experts.gate_up_proj", down = "model.layers.3.mlp.experts.down_proj";
  for (const char* prefix : {"layers.3.ffn.experts.17.", "model.layers.3.ffn.experts.17."}) {
    EXPECT_EQ(canonical_name(std::string(prefix) + "w1.weight"),
              (CanonicalName{gate_up, ExpertPart{17, Matrix::kGate}}));
    EXPECT_EQ(canonical_name(std::string(prefix) + "w3.weight"), (CanonicalName{gate_up, ExpertPart{17, Matrix::kUp}}));
    EXPECT_EQ(canonical_name(std::string(prefix) + "w2.weight"), (CanonicalName{down, ExpertPart{17, Matrix::kDown}}));
  }
  EXPECT_EQ(canonical_name("model.layers.3.mlp.experts.17.up_proj.weight"),
            (CanonicalName{gate_up, ExpertPart{17, Matrix::kUp}}));
  EXPECT_TRUE(is_packed_experts(gate_up));
  EXPECT_TRUE(is_packed_experts("mtp.0.mlp.experts.down_proj"));
  EXPECT_FALSE(is_packed_experts("model.layers.3.mlp.shared_experts.down_proj.weight"));
}

TEST(Names, TheIndexerIsReadWithAndWithoutItsScorerModule) {
  const CanonicalName expected{"model.layers.1.self_attn.compressor.indexer.scorer.weights_proj.weight", std::nullopt};
  EXPECT_EQ(canonical_name("model.layers.1.self_attn.compressor.indexer.weights_proj.weight"), expected);
  EXPECT_EQ(canonical_name("model.layers.1.attn.indexer.weights_proj.weight"), expected);
}

TEST(Names, MatchAsAWholeOnly) {
  for (const char* name : {"",
                           "weight",
                           "lm_head",
                           "xlm_head.weight",
                           "lm_head.weight.scale",
                           "model.lm_head.weight",
                           "model.layers.0.head.weight",
                           "model.layers.0",
                           "model.layers.0.",
                           "model.layers..attn.wq_a.weight",
                           "model.layers.00.attn.wq_a.weight",
                           "model.layers.-1.attn.wq_a.weight",
                           "model.layers.1x.attn.wq_a.weight",
                           "model.layers.99999999999999999999.attn.wq_a.weight",
                           "layers.0.wq_a.weight",
                           "layers.0.attn.wq_a",
                           "layers.0.attn.wq_a.scale",
                           "layers.0.attn.norm",
                           "layers.0.norm.weight",
                           "layers.0.e_proj.weight",
                           "layers.0.ffn.experts.w1.weight",
                           "layers.0.ffn.experts.1.w4.weight",
                           "layers.0.ffn.experts.01.w1.weight",
                           "layers.0.ffn.experts.gate_up_proj",
                           "model.mtp.0.self_attn.kv_proj.weight",
                           "mtp.0.head.weight"}) {
    EXPECT_FALSE(canonical_name(name)) << name;
  }
}

TEST(Names, ACheckpointIsWrittenAgainInItsOwnSpelling) {
  const std::string outside = "model.embed_tokens.weight";
  EXPECT_EQ(own_spelling({outside, "model.layers.0.self_attn.sinks"}), Spelling::kModule);
  EXPECT_EQ(own_spelling({outside, "model.layers.0.attn.attn_sink"}), Spelling::kSavePretrained);
  EXPECT_EQ(own_spelling({"embed.weight", "layers.0.attn.attn_sink"}), Spelling::kNative);
  EXPECT_EQ(own_spelling({"model.embed.weight", "model.layers.0.attn.attn_sink"}), Spelling::kNative);
  EXPECT_EQ(own_spelling({"mtp.0.attn.attn_sink", "model.layers.0.mlp.gate.weight"}), Spelling::kModule)
      << "MTP blocks have native names beside every spelling";
}

TEST(Names, SharedCopiesBelowMtpAreKnown) {
  EXPECT_TRUE(is_shared_copy("mtp.0.embed.weight"));
  EXPECT_TRUE(is_shared_copy("mtp.0.head.weight"));
  EXPECT_FALSE(is_shared_copy("head.weight"));
  EXPECT_FALSE(is_shared_copy("mtp.0.norm.weight"));
}

TEST(Names, SpellingANameThatIsNotCanonicalIsAnInternalError) {
  EXPECT_THROW(stored_name("layers.0.attn.wq_a.weight", Spelling::kNative), c10::Error);
  EXPECT_THROW(stored_name("model.layers.0.mlp.experts.gate_up_proj", Spelling::kNative), c10::Error);
  EXPECT_THROW(stored_part_name({"model.norm.weight", ExpertPart{}}, Spelling::kNative), c10::Error);
}

}  // namespace
}  // namespace asterism::checkpoint
