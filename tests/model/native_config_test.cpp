#include "asterism/model/native_config.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::model {
namespace {

using Json = nlohmann::ordered_json;
using testing::tiny_config_json;

/// The released spelling of the tiny model, with ratios that it can say.
Json released() {
  Json json = tiny_config_json();
  json["some_key"] = {1, 2};
  return json;
}

void expect_same_model(const Config& a, const Config& b) {
  Json left = config_to_json(a), right = config_to_json(b);
  left.erase("some_key");
  right.erase("some_key");
  for (const auto& [key, value] : left.items()) EXPECT_EQ(value, right[key]) << key;
}

TEST(NativeConfig, WhatIsSpelledSoStaysAsItIs) {
  const Json json = released();
  const Json written = config_to_native_json(parse_config(json, "test"));
  for (const auto& [key, value] : json.items()) EXPECT_EQ(written[key], value) << key;
}

TEST(NativeConfig, TheSpellingOfHuggingFaceIsTranslatedBack) {
  const Config config = parse_config(released(), "test");
  const Config hf = parse_config(config_to_json(config), "hf");
  const Json written = config_to_native_json(hf);
  for (const char* key : {"layer_types", "compress_rates", "mlp_layer_types", "rope_parameters"}) {
    EXPECT_FALSE(written.contains(key)) << key;
  }
  EXPECT_EQ(written["compress_ratios"], Json({0, 4, 8, 4, 8, 0}));
  EXPECT_EQ(written["num_hash_layers"], 2);
  EXPECT_EQ(written["rope_scaling"], released()["rope_scaling"]);
  EXPECT_EQ(written["some_key"], Json({1, 2}));
  expect_same_model(parse_config(written, "written"), config);
}

TEST(NativeConfig, WhatItCannotSayStaysInTheOtherSpelling) {
  Json json = config_to_json(parse_config(released(), "test"));
  json["compress_rates"]["compressed_sparse_attention"] = 2;
  json["mlp_layer_types"] = {"moe", "hash_moe", "moe", "moe", "moe"};
  const Config config = parse_config(json, "test");
  const Json written = config_to_native_json(config);
  EXPECT_FALSE(written.contains("compress_ratios"));
  EXPECT_FALSE(written.contains("num_hash_layers"));
  expect_same_model(parse_config(written, "written"), config);
}

}  // namespace
}  // namespace asterism::model
