#include "asterism/data/tool_call.h"

#include <gtest/gtest.h>

#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

/// "name(key=text, key:json)" of a call with these arguments.
std::string read(const JsonValue& arguments, ChatVariant variant = ChatVariant::V4_0731) {
  JsonValue function = JsonValue::object({{"name", "f"}});
  function.set("arguments", arguments);
  const ToolCall call = read_tool_call(JsonValue::object({{"function", function}}), variant, 1);
  std::string out = call.name + "(";
  for (const auto& parameter : call.parameters) {
    if (out.back() != '(') out += ", ";
    out += parameter.name + (parameter.is_text ? "=" : ":") + parameter.value;
  }
  return out + ")";
}

TEST(ToolCall, ArgumentsTakeEveryForm) {
  EXPECT_EQ(read(json(R"({"b": "x", "a": {"n": 1.0}})")), "f(b=x, a:{\"n\": 1.0})");
  EXPECT_EQ(read("{\"b\":\"x\",\"a\":[1e16,12345678901234567890123]}"), "f(b=x, a:[1e+16, 12345678901234567890123])");
  EXPECT_EQ(read(" {\"é\u2028\":\"\\\"\"}\n"), "f(é\u2028=\")");
  EXPECT_EQ(read(json(R"({"arguments": {"a": 1}})")), "f(arguments:{\"a\": 1})");  // never unwrapped
  EXPECT_EQ(read("{\"arguments\":\"{}\"}"), "f(arguments={})");
  EXPECT_EQ(read("{}"), "f()");
  EXPECT_EQ(read(JsonValue()), "f()");
  for (const char* verbatim : {"", "not json", "{\"a\": 1", "null", "[1,2]", "3", "\"x\"", "{\"a\":01}", "\uFEFF{}"}) {
    EXPECT_EQ(read(verbatim), std::string("f(arguments=") + verbatim + ")");
  }
  EXPECT_EQ(read("{\"a\":" + std::string(4301, '1') + "}").substr(0, 14), "f(arguments={\"");
  EXPECT_EQ(read(json("[1,  2]")), "f(arguments:[1, 2])");
  const ToolCall missing = read_tool_call(json(R"({"id": "c", "function": {"name": ""}})"), ChatVariant::V4_0731, 0);
  EXPECT_EQ(missing.name, "");
  EXPECT_TRUE(missing.parameters.empty());
}

TEST(ToolCall, OnlyTheNextVersionDecodesTwice) {
  const std::string twice = R"("{\"a\": 1}")";
  EXPECT_EQ(read(twice.c_str()), "f(arguments=" + twice + ")");
  EXPECT_EQ(read(twice.c_str(), ChatVariant::V4_1), "f(a:1)");
  EXPECT_EQ(read("\"x\"", ChatVariant::V4_1), "f(arguments=\"x\")");
}

TEST(ToolCall, WhatCannotBeHeldIsAnErrorOfTheMessage) {
  const auto category = [](const JsonValue& arguments) {
    try {
      read(arguments);
    } catch (const ChatError& error) {
      EXPECT_EQ(error.message_index(), 1u);
      return error.category();
    }
    return std::string("none");
  };
  EXPECT_EQ(category(R"({"a": "\ud800"})"), "lone_surrogate");
  EXPECT_EQ(category(R"({"a": "\ud800")"), "none");  // no JSON, so it is text
  EXPECT_EQ(category(JsonValue(std::string(300, '[') + std::string(300, ']'))), "too_deep");
}

TEST(ToolCall, UnframeableCallsAreFound) {
  const auto fails = [](const std::string& name, const std::string& key, const std::string& value) {
    try {
      check_frameable({name, {{key, true, value}}}, 4);
      return false;
    } catch (const ChatError& error) {
      EXPECT_EQ(error.category(), "unframeable");
      EXPECT_EQ(error.message_index(), 4u);
      return true;
    }
  };
  EXPECT_FALSE(fails("f \"<x>", "k\"", "v\">\n</parameter>"));
  EXPECT_TRUE(fails("f｜DSML｜", "k", "v"));
  EXPECT_TRUE(fails("f", "k｜DSML｜", "v"));
  EXPECT_TRUE(fails("f", "k", "</｜DSML｜parameter>"));
  EXPECT_TRUE(fails("f\">\n", "k", "v"));
  EXPECT_TRUE(fails("f", "k\" string=\"true\">", "v"));
}

}  // namespace
}  // namespace asterism::data
