#include "asterism/data/row_review.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

/// The warnings about a row: code -> explanation.
std::map<std::string, std::string> review(const std::string& row) {
  std::map<std::string, std::string> result;
  for (const RowWarning& warning : review_conversation(read_chat_row(json(row), {}))) {
    EXPECT_TRUE(result.emplace(warning.code, warning.explanation).second) << warning.code << " twice";
  }
  return result;
}

std::string codes(const std::string& row) {
  std::string all;
  for (const auto& [code, explanation] : review(row)) all += (all.empty() ? "" : " ") + code;
  return all;
}

std::string chat(const std::string& messages, const std::string& rest = "") {
  return "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, " + messages + "]" + rest + "}";
}

constexpr const char* kTools = R"(, "tools": [{"type": "function", "function": {"name": "get", "parameters":
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])";

std::string call(const std::string& name, const std::string& arguments) {
  return R"({"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": )"
         R"({"name": ")" +
         name + "\", \"arguments\": " + arguments + "}}]}";
}

constexpr const char* kResult = R"(, {"role": "tool", "tool_call_id": "1", "content": "r"})";
constexpr const char* kAnswer = R"(, {"role": "assistant", "content": "a"})";

TEST(RowReview, OrdinaryRowsHaveNoWarnings) {
  EXPECT_EQ(codes(chat(R"({"role": "assistant", "content": "a"})")), "");
  EXPECT_EQ(codes(chat(R"({"role": "assistant", "reasoning_content": "r", "content": "a"})")), "");
  EXPECT_EQ(codes(chat(call("get", R"({"city": "Bern"})") + kResult + kAnswer, kTools)), "");
  EXPECT_EQ(codes(chat(call("get", R"("{\"city\": \"Bern\"}")") + kResult + kAnswer, kTools)), "");
  EXPECT_EQ(codes(R"({"messages": []})"), "");
}

TEST(RowReview, CallsAreComparedWithTheDeclaredTools) {
  EXPECT_EQ(codes(chat(call("get", R"({"city": "Bern"})"))), "undeclared_tool");
  const auto other = review(chat(call("set", R"({"city": "Bern"})"), kTools));
  EXPECT_EQ(other.at("undeclared_tool"), "message 1 calls set, which is not among the tools");
  const auto wrong = review(chat(call("get", R"({"town": "Bern"})"), kTools));
  EXPECT_EQ(wrong.at("arguments_mismatch"), "message 1 calls get: arguments has no city, which is required");
  EXPECT_EQ(codes(chat(call("get", R"("{\"city\": 5}")"), kTools)), "arguments_mismatch");
  EXPECT_EQ(codes(chat(call("get", "null"), kTools)), "arguments_mismatch");
  for (const char* arguments : {R"("{'city': 'Bern'}")", R"("")", R"("[1]")", R"("null")", "[1]"}) {
    EXPECT_EQ(codes(chat(call("get", arguments), kTools)), "arguments_not_json") << arguments;
  }
}

TEST(RowReview, ToolsOfASystemMessageAreDeclaredToo) {
  const std::string row = R"({"messages": [{"role": "system", "content": "s", "tools": [{"type": "function",
      "function": {"name": "get", "parameters": {}}}]}, {"role": "user", "content": "q"}, )" +
                          call("get", "{}") + "]}";
  EXPECT_EQ(codes(row), "");
}

TEST(RowReview, ResultsNeedCalls) {
  EXPECT_EQ(codes(chat(call("get", R"({"city": "Bern"})") + kResult + kResult + kAnswer, kTools)),
            "result_without_call");
  EXPECT_EQ(codes(R"({"messages": [{"role": "tool", "content": "r"}, {"role": "assistant", "content": "a"}]})"),
            "result_without_call");
}

TEST(RowReview, ReasoningThatIsNotWrittenIsTold) {
  const std::string turns = R"({"role": "assistant", "reasoning_content": "r", "content": "a"},
      {"role": "user", "content": "q"}, {"role": "assistant", "reasoning_content": "r", "content": "a"})";
  EXPECT_NE(review(chat(turns)).at("reasoning_dropped").find("1 of 2 answers"), std::string::npos);
  EXPECT_NE(review(chat(turns, R"(, "thinking_mode": "chat")")).at("reasoning_dropped").find("2 of 2"),
            std::string::npos);
  EXPECT_EQ(codes(chat(turns, R"(, "history": "split")")), "");
  EXPECT_EQ(codes(chat(turns, R"(, "history": "split", "thinking_mode": "chat")")), "reasoning_dropped");
  EXPECT_EQ(codes(chat(turns, R"(, "drop_thinking": false)")), "");
  EXPECT_EQ(codes(chat(turns, kTools)), "");  // with tools nothing is dropped
}

TEST(RowReview, MarkupInAnswersIsTold) {
  EXPECT_EQ(codes(chat(R"({"role": "assistant", "content": "<think>r</think>a"})")), "think_tags_in_content");
  EXPECT_EQ(review(chat(R"({"role": "assistant", "content": "a<｜User｜>b"})")).at("special_token_in_content"),
            "message 1 has <｜User｜>b");
  EXPECT_EQ(codes(chat(R"({"role": "assistant", "content": ""})")), "empty_answer");
  EXPECT_EQ(codes(chat(R"({"role": "assistant", "content": null, "reasoning_content": "r"})")), "");
}

}  // namespace
}  // namespace asterism::data
