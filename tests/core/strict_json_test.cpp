#include "asterism/core/strict_json.h"

#include <gtest/gtest.h>

#include "asterism/core/error.h"
#include "tests/support/temporary_folder.h"

namespace asterism {
namespace {

using testing::error_of;

/// The message of a refusal, which both functions must give.
std::string refusal(const std::string& content) {
  const std::string message = error_of<InputError>([&] { parse_strict_json(content, "f"); });
  EXPECT_EQ(error_of<InputError>([&] { parse_ordered_json(content, "f"); }), message);
  return message;
}

TEST(StrictJson, ReadsWhatIsValid) {
  const auto json = parse_strict_json(R"( {"a": {"x": 1}, "b": {"x": [{"x": 2}]}} )", "f");
  EXPECT_EQ(json["b"]["x"][0]["x"], 2);  // equal keys of different objects are no duplicates
}

TEST(StrictJson, GivesWhatTheParserOfTheLibraryGives) {
  for (const char* content :
       {R"([null,true,false,0,-1,1.5,-0.0,"",{},[],[[1],{"a":[2]}]])", "3", "\"\\u00e9\\u0000\"",
        R"({"b":{"y":1,"x":[{}]},"a":18446744073709551615,"c":-9223372036854775808})", "1e-320"}) {
    EXPECT_EQ(parse_strict_json(content, "f").dump(), nlohmann::json::parse(content).dump());
    EXPECT_EQ(parse_ordered_json(content, "f").dump(), nlohmann::ordered_json::parse(content).dump());
  }
}

TEST(StrictJson, ManyObjectsTakeLinearTime) {  // with quadratic time, minutes
  std::string content = "{";
  for (int i = 0; i < 300'000; ++i) content += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":{}";
  EXPECT_EQ(parse_strict_json(content + "}", "f").size(), 300'000U);
}

TEST(StrictJson, KeepsTheOrderOfKeysWhenAsked) {
  EXPECT_EQ(parse_ordered_json(R"({"b":1,"a":{"d":2,"c":3}})", "f").dump(), R"({"b":1,"a":{"d":2,"c":3}})");
}

TEST(StrictJson, ADuplicateKeyAtAnyDepthIsRefused) {
  for (const char* content : {R"({"k":1,"k":2})", R"({"a":[{"k":1,"k":1}]})", R"({"k":{"b":1},"c":3,"k":4})"}) {
    EXPECT_EQ(refusal(content), "f: the key 'k' appears twice; the file is corrupt");
  }
}

TEST(StrictJson, BrokenTextIsRefusedWithItsOffset) {
  EXPECT_EQ(refusal("{\"a\":1}x").find("f: not valid JSON at byte 8"), 0U);
  EXPECT_EQ(refusal("{\"\xff\":1}").find("f: not valid JSON at byte 3"), 0U);
  EXPECT_EQ(refusal("{\"a\":}").find("f: not valid JSON at byte 6"), 0U);
  EXPECT_EQ(refusal("").find("f: not valid JSON"), 0U);
}

TEST(StrictJson, ANumberThatNoDoubleHoldsIsRefused) {
  for (const std::string number : {"1e999", "-1e999"}) {
    EXPECT_EQ(refusal("{\"a\":" + number + "}").find("f: expected numbers that a double can hold"), 0U);
  }
  EXPECT_LT(refusal("9" + std::string(100'000, '9') + "e9").size(), 1000U) << "the message must stay short";
}

TEST(StrictJson, DeepNestingIsRefused) {
  const auto nested = [](const std::string& open, const std::string& close, int depth) {
    std::string content;
    for (int i = 0; i < depth; ++i) content += open;
    content += "1";
    for (int i = 0; i < depth; ++i) content += close;
    return content;
  };
  EXPECT_EQ(parse_strict_json(nested("[", "]", 60), "f").dump(), nested("[", "]", 60));
  for (const int depth : {100, 1'000'000}) {
    EXPECT_EQ(refusal(nested("[", "]", depth)).find("f: nested more than 64 deep"), 0U);
    EXPECT_EQ(refusal(nested("{\"a\":", "}", depth)).find("f: nested more than 64 deep"), 0U);
  }
  EXPECT_EQ(refusal(std::string(1'000'000, '[')).find("f: nested more than 64 deep"), 0U);
}

TEST(StrictJson, KeysInOrderAreLimited) {
  std::string content = "{";
  for (int i = 0; i < 100'000; ++i) content += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":1";
  content += "}";
  EXPECT_EQ(parse_strict_json(content, "f").size(), 100'000U);
  const std::string message = error_of<InputError>([&] { parse_ordered_json(content, "f"); });
  EXPECT_EQ(message, "f: expected at most 10000 keys in one object, found more");
}

}  // namespace
}  // namespace asterism
