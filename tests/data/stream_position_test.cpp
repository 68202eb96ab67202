#include "asterism/data/stream_position.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;
using testing::error_of;

const StreamIdentity kIdentity{"00ff", 10, 200};

TEST(StreamPosition, SurvivesJson) {
  const StreamPosition position{3, 1234567890123};
  const Json json = Json::parse(position_to_json(position, kIdentity).dump());
  EXPECT_EQ(position_from_json(json, kIdentity, "step-3"), position);
}

TEST(StreamPosition, BelongsToItsData) {
  const Json json = position_to_json({1, 2}, kIdentity);
  const std::string larger = error_of<InputError>([&] { position_from_json(json, {"11ff", 12, 240}, "step-3"); });
  for (const char* part :
       {"step-3: the training data are not those", "10 samples of 200 tokens", "12 of 240", "choose another name"}) {
    EXPECT_NE(larger.find(part), std::string::npos) << larger;
  }
  const std::string other = error_of<InputError>([&] { position_from_json(json, {"11ff", 10, 200}, "step-3"); });
  EXPECT_NE(other.find("of other content or in another order"), std::string::npos) << other;
}

TEST(StreamPosition, AnythingElseIsRefused) {
  Json json = position_to_json({1, 2}, kIdentity);
  for (const char* key : {"epoch", "row", "samples", "tokens"}) {
    for (const Json& value : {Json(-1), Json("1"), Json(1.5), Json()}) {
      Json damaged = json;
      damaged[key] = value;
      EXPECT_NE(error_of<InputError>([&] { position_from_json(damaged, kIdentity, "s"); }).find(key),
                std::string::npos);
    }
  }
  EXPECT_THROW(position_from_json(Json(), kIdentity, "s"), InputError);
  json.erase("fingerprint");
  EXPECT_THROW(position_from_json(json, kIdentity, "s"), InputError);
}

}  // namespace
}  // namespace asterism::data
