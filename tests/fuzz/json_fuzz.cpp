#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/data/python_json.h"
#include "asterism/data/utf8.h"
#include "tests/fuzz/fuzz.h"

namespace asterism::fuzz {
namespace {

using namespace asterism::data;

void check_json(const std::string& text) {
  JsonValue value;
  const auto fault = parse_json(text, value);
  if (fault) {
    ASSERT_LE(fault->offset, text.size()) << text;
    // What another reader takes must be refused for a reason of Python or of UTF-8 only. That reader stops at a NUL and
    // skips a byte order mark.
    const bool is_syntax = fault->kind == JsonFault::Kind::Syntax && fault->reason.find("4,300") == std::string::npos;
    const bool is_text = text.find('\0') == std::string::npos && !text.starts_with("\xEF\xBB\xBF");
    ASSERT_FALSE(is_syntax && is_text && nlohmann::json::accept(text)) << fault->reason << "\n" << text;
    return;
  }
  const std::string written = to_json(value);
  ASSERT_FALSE(find_invalid_utf8(written)) << text;
  JsonValue again;
  ASSERT_FALSE(parse_json(written, again)) << text;
  ASSERT_EQ(to_json(again), written) << text;
}

TEST(Fuzz, Json) {
  const std::vector<std::string> others = {R"({"a": [1, 2.5, -0.0, 1e5], "b": "x\u00e9\ud83d\ude42"})", "[[[[]]]]"};
  for_each_input("json", 30000, [&](Dice& dice) {
    const std::string text = mutated(dice, to_json(test::hostile_json(dice, 5)), others);
    check_json(replace_invalid_utf8(text));
  });
}

TEST(Fuzz, JsonOfAMegabyteTakesLinearTime) {
  const auto repeated = [](std::string text, const std::string& unit, const std::string& end) {
    while (text.size() < 1'000'000) text += unit;
    return text + end;
  };
  std::string keys = "{";
  for (int i = 0; i < 100'000; ++i) keys += (i > 0 ? ",\"" : "\"") + std::to_string(i % 50'000) + "\":1";
  for (const std::string& text :
       {repeated("", "[", ""), repeated("", "{\"a\":", ""), repeated("[", "1,", "1]"), repeated("", "9", ""),
        repeated("0.", "9", ""), repeated("\"", "\\ud83d\\ude42", "\""), repeated("\"", "\\", "\""), keys + "}",
        repeated("", " ", "1"), repeated("{", "\"\":1,", "\"\":2}"), repeated("1e", "9", "")}) {
    check_json(text);
  }
}

}  // namespace
}  // namespace asterism::fuzz
