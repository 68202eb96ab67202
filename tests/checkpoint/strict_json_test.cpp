#include "asterism/checkpoint/strict_json.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism::checkpoint {
namespace {

using asterism::testing::error_of;

TEST(StrictJson, ReadsWhatIsValid) {
  const auto json = parse_strict_json(R"( {"a": {"x": 1}, "b": {"x": [{"x": 2}]}} )", "f");
  EXPECT_EQ(json["b"]["x"][0]["x"], 2);  // equal keys of different objects are no duplicates
}

TEST(StrictJson, ADuplicateKeyAtAnyDepthIsRefused) {
  for (const char* content : {R"({"k":1,"k":2})", R"({"a":[{"k":1,"k":1}]})", R"({"k":{"b":1},"c":3,"k":4})"}) {
    const std::string message = error_of<InputError>([&] { parse_strict_json(content, "f"); });
    EXPECT_EQ(message.find("f: the key 'k' appears twice"), 0U) << message;
  }
}

TEST(StrictJson, BrokenTextIsRefusedWithItsOffset) {
  const std::string message = error_of<InputError>([] { parse_strict_json("{\"a\":}", "f"); });
  EXPECT_EQ(message.find("f: not valid JSON at byte 6"), 0U) << message;
  EXPECT_THROW(parse_strict_json("", "f"), InputError);
  EXPECT_THROW(parse_strict_json(std::string(100'000, '['), "f"), InputError);
}

}  // namespace
}  // namespace asterism::checkpoint
