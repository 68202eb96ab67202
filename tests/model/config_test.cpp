#include "asterism/model/config.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

using Json = nlohmann::ordered_json;

std::string error_of(const Json& json) {
  try {
    parse_config(json, "config.json");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Config, DeepSeekAndHuggingFaceSpellingsMeanTheSame) {
  const Config deepseek = testing::tiny_config();
  const Config again = parse_config(config_to_json(deepseek), "saved");
  EXPECT_EQ(again.num_layers(), 5);
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_EQ(again.layers[i].attention, deepseek.layers[i].attention);
    EXPECT_EQ(again.layers[i].ratio, deepseek.layers[i].ratio);
    EXPECT_EQ(again.layers[i].router, deepseek.layers[i].router);
  }
  EXPECT_EQ(deepseek.layers[1].attention, AttentionKind::kSparse);
  EXPECT_EQ(deepseek.layers[2].attention, AttentionKind::kHeavy);
  EXPECT_EQ(deepseek.layers[2].ratio, 8);
  EXPECT_EQ(again.rope_dim, 4);
  EXPECT_TRUE(again.compress_rope.yarn);
  EXPECT_FALSE(again.main_rope.yarn);
  EXPECT_EQ(again.compress_rope.factor, 16.0);
  EXPECT_EQ(again.compress_rope.theta, 160000.0);
  EXPECT_EQ(again.swiglu_limit, 0.5);
  EXPECT_EQ(again.num_mtp_layers, 1);
}

TEST(Config, UnknownKeysSurviveASave) {
  Json json = testing::tiny_config_json();
  json["somebody's key"] = {{"a", 1}};
  EXPECT_EQ(config_to_json(parse_config(json, "x")).at("somebody's key"), json.at("somebody's key"));
}

TEST(Config, EveryFaultNamesTheKeyAndWhatWasExpected) {
  struct Fault {
    const char* key;
    Json value;  // discarded = remove the key
    const char* expected;
  };
  const Json remove(Json::value_t::discarded);
  const Fault faults[] = {
      {"model_type", remove, "model_type"},
      {"model_type", "deepseek_v3", "\"deepseek_v4\""},
      {"hidden_size", "64", "a positive integer"},
      {"hidden_size", 0, "a positive integer"},
      {"hidden_size", -64, "a positive integer"},
      {"hidden_size", 64.5, "a positive integer"},
      {"n_routed_experts", 1'000'000'001, "a positive integer up to 1000000000"},
      {"vocab_size", uint64_t{1} << 63, "a positive integer up to 1000000000"},
      {"vocab_size", 1e300, "a positive integer up to 1000000000"},
      {"num_hidden_layers", 1'000'000'000, "at least num_hidden_layers = 1000000000"},
      {"num_nextn_predict_layers", 101, "at most 100"},
      {"eos_token_id", Json::array(), "a token id or a list of them"},
      {"eos_token_id", Json::array({"a"}), "a token id or a list of them"},
      {"vocab_size", remove, "vocab_size"},
      {"compress_ratios", Json::array({0, 4}), "at least num_hidden_layers"},
      {"compress_ratios", Json::array({0, 4, 8, 4, 16, 0}), "one ratio"},
      {"compress_ratios", Json::array({0, 4, int64_t{1} << 62, 4, 8, 0}), "integers from 0 to 1000000000"},
      {"compress_ratios", Json::array({0, 4, 8, 4, 8, 4}), "MTP"},
      {"compress_ratios", remove, "layer_types"},
      {"num_hash_layers", remove, "mlp_layer_types"},
      {"num_experts_per_tok", 7, "n_routed_experts"},
      {"o_groups", 3, "multiple of o_groups"},
      {"qk_rope_head_dim", 5, "even"},
      {"qk_rope_head_dim", 18, "from 0 to head_dim"},
      {"n_shared_experts", 2, "1"},
      {"scoring_func", "softmax", "sqrtsoftplus"},
      {"tie_word_embeddings", true, "false"},
      {"rope_scaling", Json{{"type", "linear"}, {"factor", 2}}, "yarn"},
      {"rms_norm_eps", "1e-6", "a finite number"},
      {"partial_rotary_factor", 0.5, "rotating channels"},
      {"partial_rotary_factor", 1e300, "rotating channels"},
  };
  for (const Fault& fault : faults) {
    Json json = testing::tiny_config_json();
    if (fault.value.is_discarded()) {
      json.erase(fault.key);
    } else {
      json[fault.key] = fault.value;
    }
    const std::string error = error_of(json);
    EXPECT_NE(error.find(fault.expected), std::string::npos) << fault.key << ": " << error;
    EXPECT_NE(error.find("config.json"), std::string::npos) << error;
  }
  EXPECT_EQ(error_of(testing::tiny_config_json()), "");
  EXPECT_NE(error_of(Json::array()), "");
}

}  // namespace
}  // namespace asterism::model
