#include "asterism/data/python_json.h"

#include <gtest/gtest.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "asterism/core/rng.h"
#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

std::string rewritten(std::string_view text) {
  return to_json(json(text));
}

/// What parse_json says of a text: the kind of fault and where.
std::string fault_of(std::string_view text) {
  JsonValue value;
  const auto fault = parse_json(text, value);
  if (!fault) return "none";
  const char* kinds[] = {"syntax", "surrogate", "deep"};
  return std::string(kinds[static_cast<size_t>(fault->kind)]) + " " + std::to_string(fault->offset);
}

TEST(PythonJson, NumbersAreSpeltAsByPython) {
  const std::pair<const char*, const char*> cases[] = {
      {"1", "1"},
      {"-0", "0"},
      {"1.0", "1.0"},
      {"-0.0", "-0.0"},
      {"0e5", "0.0"},
      {"100", "100"},
      {"1e2", "100.0"},
      {"1E+2", "100.0"},
      {"2.50", "2.5"},
      {"1e15", "1000000000000000.0"},
      {"1e16", "1e+16"},
      {"9999999999999998.0", "9999999999999998.0"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"0.0001", "0.0001"},
      {"0.00012345", "0.00012345"},
      {"0.00001", "1e-05"},
      {"0.000012345", "1.2345e-05"},
      {"1e-7", "1e-07"},
      {"1e100", "1e+100"},
      {"5e-324", "5e-324"},
      {"2e-400", "0.0"},
      {"-2e-400", "-0.0"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"1e999", "Infinity"},
      {"-1e999", "-Infinity"},
      {"[NaN, Infinity, -Infinity]", "[NaN, Infinity, -Infinity]"},
      {"9223372036854775807", "9223372036854775807"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"9223372036854775808", "9223372036854775808"},
      {"-12345678901234567890123", "-12345678901234567890123"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(rewritten(text), expected) << text;
}

TEST(PythonJson, WholeNumbersMayHaveAsManyDigitsAsInPython) {
  const std::string longest(4300, '9');
  EXPECT_EQ(rewritten(longest), longest);
  EXPECT_EQ(rewritten("-" + longest), "-" + longest);
  EXPECT_EQ(fault_of("[" + longest + "9]"), "syntax 1");
  EXPECT_EQ(rewritten(longest + "9e0"), "Infinity");
}

TEST(PythonJson, StringsAreEscapedOnlyWhereTheyMustBe) {
  EXPECT_EQ(rewritten(R"("\"\\\/\b\f\n\r\t\u0000\u001F\u007f\u2028é👍")"),
            "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f\u2028é👍\"");
  EXPECT_EQ(rewritten(R"("\ud83d\udc4d\u4F60")"), "\"👍你\"");
}

TEST(PythonJson, OrderStaysAndTheLastOfEqualKeysCounts) {
  EXPECT_EQ(rewritten(R"( {"z" :1,"a":[ ],"é":{"y":1,"b":{}}} )"), R"({"z": 1, "a": [], "é": {"y": 1, "b": {}}})");
  EXPECT_EQ(rewritten(R"({"a":1,"b":2,"a":3,"c":4,"b":5})"), R"({"a": 3, "b": 5, "c": 4})");
  std::string many = "{", kept = "{";
  for (int i = 0; i < 100; ++i) {
    many += text(i ? ", " : "", "\"k", i % 40, "\": ", i);
    if (i < 40) kept += text(i ? ", " : "", "\"k", i, "\": ", i < 20 ? i + 80 : i + 40);
  }
  EXPECT_EQ(rewritten(many + "}"), kept + "}");
}

TEST(PythonJson, WhatPythonRefusesIsRefused) {
  const char* refused[] = {
      "",
      " ",
      "{",
      "[1",
      "[1,]",
      "{\"a\":1,}",
      "{\"a\"}",
      "{a:1}",
      "01",
      "1.",
      ".5",
      "+1",
      "1e",
      "1e+",
      "-",
      "- 1",
      "0x1",
      "nan",
      "Infinit",
      "-NaN",
      "nul",
      "True",
      "'a'",
      "\"a",
      "\"a\tb\"",
      "\"\n\"",
      "\"\\x\"",
      "\"\\u12\"",
      "\"\\u12g4\"",
      "\"\\u+123\"",
      "[1 2]",
      "{} {}",
      "1 2",
      "\xEF\xBB\xBF{}",
      "\f1",
      "/**/1",
      "[,1]",
      "{,}",
      "]",
      "\"\\",
      "\"\\u",
      "1_000",
      "\u00a01",
      "[1}",
      "{\"a\":1]",
  };
  for (const char* text : refused) EXPECT_EQ(fault_of(text).substr(0, 6), "syntax") << text;
  EXPECT_EQ(fault_of(std::string_view("\"a\0b\"", 5)), "syntax 2");
  EXPECT_EQ(fault_of(std::string_view("1\0", 2)), "syntax 1");
  EXPECT_EQ(fault_of("[1, x]"), "syntax 4");
}

TEST(PythonJson, LoneSurrogatesAreNoText) {
  EXPECT_EQ(fault_of(R"("\ud800")"), "surrogate 1");
  EXPECT_EQ(fault_of(R"("ab\udc00")"), "surrogate 3");
  EXPECT_EQ(fault_of(R"("\ud800\ud83d\udc4d")"), "surrogate 1");
  EXPECT_EQ(fault_of(R"("\ud800\n")"), "surrogate 1");
  EXPECT_EQ(fault_of(R"(["\ud800", x])"), "syntax 11");  // no JSON at all is the graver fault
}

TEST(PythonJson, NestingIsBounded) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_EQ(fault_of(nested(kMaxJsonDepth)), "none");
  EXPECT_EQ(fault_of(nested(kMaxJsonDepth + 1)), text("deep ", kMaxJsonDepth));
  EXPECT_EQ(fault_of(std::string(1000000, '[')), text("deep ", kMaxJsonDepth));
  EXPECT_EQ(fault_of("\"" + std::string(1000, '[') + "\""), "none");
}

/// The shortest digits are those of to_chars; here the whole spelling is read back.
TEST(PythonJson, FloatsReadBackAsTheyWere) {
  const RandomStream stream(1, "floats");
  for (uint64_t i = 0; i < 20000; ++i) {
    const uint64_t bits = stream.bits(i);
    double value = 0;
    std::memcpy(&value, &bits, sizeof value);
    if (i % 2) value = std::ldexp(static_cast<double>(bits >> 12), static_cast<int>(bits % 120) - 80);
    if (std::isnan(value)) continue;
    const std::string written = to_json(value);
    const JsonValue read = json(written);
    ASSERT_TRUE(read.is_float()) << written;
    EXPECT_EQ(read.as_float(), value) << written;
    EXPECT_EQ(to_json(read), written);
  }
}

}  // namespace
}  // namespace asterism::data
