#include "asterism/data/chat_conversion.h"

#include <gtest/gtest.h>

#include "asterism/data/chat_error.h"
#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

JsonValue converted(std::string_view text) {
  JsonValue row = json(text);
  const RowKind kind = kind_of_row(row);
  return to_chat_row(kind, std::move(row));
}

std::string messages(std::string_view text) {
  return to_json(converted(text).get("messages"));
}

struct Problem {
  std::string category;
  std::optional<size_t> index;
  bool operator==(const Problem&) const = default;
};

Problem problem(std::string_view text) {
  try {
    converted(text);
  } catch (const ChatError& error) {
    EXPECT_FALSE(error.explanation().empty());
    return {error.category(), error.message_index()};
  }
  return {"none", {}};
}

TEST(ChatConversion, ShareGptTurnsBecomeMessages) {
  EXPECT_EQ(messages(R"({"conversations": [
      {"from": "system", "value": "s"}, {"from": "human", "value": "q"}, {"from": "gpt", "value": "a", "loss": false},
      {"from": "user", "value": "r"}, {"from": "assistant", "value": "b"}]})"),
            R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, )"
            R"({"role": "assistant", "content": "a", "loss": false}, {"role": "user", "content": "r"}, )"
            R"({"role": "assistant", "content": "b"}])");
}

TEST(ChatConversion, ShareGptCallsBelongToTheAnswerInFront) {
  EXPECT_EQ(
      messages(R"({"conversations": [
      {"from": "human", "value": "q"}, {"from": "gpt", "value": "wait"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1.0}}"},
      {"from": "function_call", "value": "[{\"name\": \"g\", \"arguments\": \"{}\"}]"},
      {"from": "observation", "value": "1"}, {"from": "tool", "value": "2"},
      {"from": "function_call", "value": "{\"name\": \"h\"}"}]})"),
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "wait", "tool_calls": )"
      R"([{"function": {"name": "f", "arguments": {"x": 1.0}}}, {"function": {"name": "g", "arguments": "{}"}}]}, )"
      R"({"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, )"
      R"({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "h"}}]}])");
}

TEST(ChatConversion, WhatStandsBesideAShareGptConversationIsKept) {
  const JsonValue row = converted(R"({"id": 7, "system": "s", "tools": "[{\"name\": \"f\", \"parameters\": {}}]",
      "thinking_mode": "chat", "conversations": "[{\"from\": \"human\", \"value\": \"q\"}]"})");
  EXPECT_EQ(to_json(row.get("messages")), R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}])");
  EXPECT_EQ(to_json(row.get("tools")), R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
  EXPECT_EQ(row.get("thinking_mode").as_string(), "chat");
  EXPECT_TRUE(row.get("conversations").is_null());
  EXPECT_EQ(kind_of_row(row), RowKind::Chat);
}

TEST(ChatConversion, BrokenShareGptRowsAreNamed) {
  const char* kCategory = "invalid_conversations";
  const std::pair<const char*, std::optional<size_t>> cases[] = {
      {R"({"conversations": {}})", {}},
      {R"({"conversations": "hello"})", {}},
      {R"({"conversations": [3]})", 0},
      {R"({"conversations": [{"from": "human", "value": "q"}, {"from": "narrator", "value": "q"}]})", 1},
      {R"({"conversations": [{"from": "human", "value": null}]})", 0},
      {R"({"conversations": [{"from": "human", "value": ["q"]}]})", 0},
      {R"({"conversations": [{"value": "q"}]})", 0},
      {R"({"conversations": [{"role": "user", "content": "q"}]})", 0},
      {R"({"conversations": [{"from": "function_call", "value": "f x"}]})", 0},
      {R"({"conversations": [{"from": "function_call", "value": "3"}]})", 0},
      {R"({"conversations": [{"from": "function_call", "value": "[{\"arguments\": {}}]"}]})", 0},
      {R"({"conversations": [{"from": "function_call", "value": "[3]"}]})", 0},
      {R"({"system": "s", "conversations": [{"from": "system", "value": "t"}]})", 0},
      {R"({"system": ["s"], "conversations": []})", {}},
  };
  for (const auto& [row, index] : cases) EXPECT_EQ(problem(row), (Problem{kCategory, index})) << row;
}

TEST(ChatConversion, AlpacaIsAQuestionAndItsAnswer) {
  EXPECT_EQ(messages(R"({"instruction": "i", "output": "o"})"),
            R"([{"role": "user", "content": "i"}, {"role": "assistant", "content": "o"}])");
  EXPECT_EQ(messages(R"({"instruction": "i", "input": "", "output": "o", "system": ""})"),
            R"([{"role": "user", "content": "i"}, {"role": "assistant", "content": "o"}])");
  const JsonValue row = converted(R"({"instruction": "i", "input": "j", "output": "o", "system": "s",
                                      "history": [["q", "a"]]})");
  EXPECT_EQ(to_json(row.get("messages")),
            R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"}, )"
            R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "i\nj"}, )"
            R"({"role": "assistant", "content": "o"}])");
  EXPECT_TRUE(row.get("history").is_null());
  EXPECT_EQ(converted(R"({"instruction": "i", "output": "o", "history": "all"})").get("history").as_string(), "all");
}

TEST(ChatConversion, BrokenAlpacaRowsAreNamed) {
  for (const char* row : {
           R"({"instruction": "i"})",
           R"({"instruction": "i", "output": null})",
           R"({"instruction": "i", "output": ["chosen", "rejected"]})",
           R"({"instruction": ["i"], "output": "o"})",
           R"({"instruction": "i", "input": 5, "output": "o"})",
           R"({"instruction": "i", "output": "o", "history": [["q"]]})",
           R"({"instruction": "i", "output": "o", "history": [["q", null]]})",
           R"({"instruction": "i", "output": "o", "history": {"q": "a"}})",
           R"({"instruction": "i", "output": "o", "history": "[1"})",
           R"({"instruction": "i", "output": "o", "system": 5})",
       }) {
    EXPECT_EQ(problem(row), (Problem{"invalid_alpaca", {}})) << row;
  }
}

TEST(ChatConversion, ChatRowsMayHoldJsonText) {
  const JsonValue row =
      converted(R"({"messages": "[{\"role\": \"user\", \"content\": \"q\"}]", "tools": "[{\"function\": {}}]"})");
  EXPECT_EQ(to_json(row.get("messages")), R"([{"role": "user", "content": "q"}])");
  EXPECT_EQ(to_json(row.get("tools")), R"([{"function": {}}])");
  EXPECT_EQ(problem(R"({"messages": "hi"})").category, "invalid_messages");
  EXPECT_EQ(problem(R"({"messages": [], "tools": "[{]"})").category, "invalid_tools");
}

TEST(ChatConversion, WhatWouldBeLostIsRefused) {
  EXPECT_EQ(problem(R"({"system": "s", "messages": []})").category, "invalid_messages");
  EXPECT_EQ(problem(R"({"system": "", "messages": []})").category, "none");
  for (const char* key : {"images", "image", "videos", "video", "audios", "audio"}) {
    EXPECT_EQ(problem(text("{\"messages\": [], \"", key, "\": [\"a.png\"]}")).category, "unsupported_feature") << key;
    EXPECT_EQ(problem(text("{\"messages\": [], \"", key, "\": []}")).category, "none") << key;
  }
  EXPECT_EQ(problem(R"({"conversations": [{"from": "human", "value": "<image>"}], "images": ["a"]})").category,
            "unsupported_feature");
  EXPECT_EQ(problem(R"({"conversations": [{"from": "human", "value": "<image>"}]})").category, "none");
}

}  // namespace
}  // namespace asterism::data
