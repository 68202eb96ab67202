#include "asterism/data/chat_encoder.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

std::string category_of(const Conversation& conversation, const ChatOptions& options = {}) {
  try {
    encode_chat(conversation, options);
  } catch (const ChatError& error) {
    return error.category();
  }
  return "none";
}

int check_cases(const JsonValue::Array& cases) {
  int checked = 0;
  for (const JsonValue& item : cases) {
    for (const JsonValue& variant : item.get("variants").as_array()) {
      SCOPED_TRACE(id_of(item) + " " + variant.as_string());
      const ChatRow row = row_of_case(item, chat_variant(variant.as_string()));
      EXPECT_EQ(encode_chat(row.conversation, row.chat).text, item.get("expected_text").as_string());
      ++checked;
    }
  }
  return checked;
}

TEST(ChatEncoder, TextsEqualThoseOfTheOfficialModule) {
  EXPECT_EQ(check_cases(official_cases()), 145);
}

TEST(ChatEncoder, RecommendedCasesAreMet) {
  EXPECT_EQ(check_cases(own_cases("encode_recommended.json")), 13);
}

TEST(ChatEncoder, CasesOfTheNextVersionAreMet) {
  EXPECT_EQ(check_cases(own_cases("derived_v41.json")), 12);
}

TEST(ChatEncoder, PublishedPairsAreMet) {
  for (const char* name : {"official_v4.json", "ms_swift_0731.json", "vllm_v4_vision_and_v41.json"}) {
    const auto cases = published_cases(name);
    if (!cases) GTEST_SKIP() << "published pairs are not beside the sources";
    EXPECT_GE(check_cases(*cases), 3) << name;
  }
}

TEST(ChatEncoder, ErrorCasesFailWithTheirCategory) {
  // Accepted here: encode_recommended.json says how.
  const std::set<std::string> accepted = {"user_null_content", "user_list_content", "arguments_json_list",
                                          "arguments_json_null"};
  for (const JsonValue& item : own_cases("derived_encode_errors.json")) {
    std::string category = "none";
    try {
      const ChatRow row = row_of_case(item, chat_variant(item.get("variants").as_array().at(0).as_string()));
      category = category_of(row.conversation, row.chat);
    } catch (const ChatError& error) {
      category = error.category();
    }
    EXPECT_EQ(category, accepted.contains(id_of(item)) ? "none" : item.get("expected_error").as_string())
        << id_of(item);
  }
}

TEST(ChatEncoder, EveryUnreadableMessageHasItsCategory) {
  const auto one = [](const std::string& message) { return category_of(messages("[" + message + "]")); };
  const auto call = [&](const std::string& calls) {
    return one(R"({"role": "assistant", "tool_calls": )" + calls + "}");
  };
  EXPECT_EQ(category_of(messages("{}")), "invalid_messages");
  EXPECT_EQ(category_of({JsonValue::Array{}, JsonValue("x"), {}, {}}), "invalid_messages");
  EXPECT_EQ(one(R"("hello")"), "invalid_message");
  EXPECT_EQ(one(R"({"content": "x"})"), "unknown_role");
  EXPECT_EQ(one(R"({"role": 3, "content": "x"})"), "unknown_role");
  EXPECT_EQ(one(R"({"role": "direct_search_results", "content": "x"})"), "unknown_role");
  EXPECT_EQ(one(R"({"role": "user", "text": "x"})"), "invalid_content");
  EXPECT_EQ(one(R"({"role": "user", "content": 7})"), "invalid_content");
  EXPECT_EQ(one(R"({"role": "user", "content": ["x"]})"), "invalid_content");
  EXPECT_EQ(one(R"({"role": "user", "content": [{"type": "text"}]})"), "invalid_content");
  EXPECT_EQ(one(R"({"role": "user", "content": [{"type": "audio"}]})"), "invalid_content");
  EXPECT_EQ(one(R"({"role": "assistant", "content": [{"type": "image_url"}]})"), "invalid_content");
  EXPECT_EQ(one(R"({"role": "tool", "content": {"a": 1}})"), "invalid_content");
  EXPECT_EQ(one(R"({"role": "developer"})"), "empty_developer");
  EXPECT_EQ(one(R"({"role": "developer", "content": []})"), "empty_developer");
  EXPECT_EQ(one(R"({"role": "user", "content": "x", "task": ""})"), "invalid_task");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "x", "task": 5})"), "invalid_task");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "x", "wo_eos": "yes"})"), "invalid_wo_eos");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "x", "reasoning": ["r"]})"), "invalid_reasoning");
  EXPECT_EQ(one(R"({"role": "assistant", "content": "x", "reasoning": "r", "reasoning_content": "s"})"),
            "conflicting_reasoning");
  EXPECT_EQ(one(R"({"role": "system", "tools": {"function": {}}})"), "bad_tool");
  EXPECT_EQ(one(R"({"role": "system", "tools": [{"name": "f"}]})"), "bad_tool");
  EXPECT_EQ(call(R"({"function": {"name": "f"}})"), "bad_tool_call");
  EXPECT_EQ(call(R"([{"function": null}])"), "bad_tool_call");
  EXPECT_EQ(call(R"([{"function": {"arguments": "{}"}}])"), "bad_tool_call");
  EXPECT_EQ(call(R"([{"function": {"name": "f", "arguments": "{\"a\": \"\\ud800\"}"}}])"), "lone_surrogate");
}

TEST(ChatEncoder, ErrorsNameTheMessageOfTheCaller) {
  // Neither merged user messages nor a system message that is made for the tools shifts the index.
  auto conversation = messages(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
      {"role": "assistant", "content": 1}])");
  conversation.tools = json(R"([{"function": {"name": "f"}}])");
  try {
    encode_chat(conversation, {});
    FAIL();
  } catch (const ChatError& error) {
    EXPECT_EQ(error.message_index(), 2u);
    EXPECT_NE(std::string(error.what()).find("message 2"), std::string::npos) << error.what();
  }
  conversation.messages.as_array().pop_back();
  conversation.context = json(R"([{"role": "user", "content": 5}])");
  try {
    encode_chat(conversation, {});
    FAIL();
  } catch (const ChatError& error) {
    EXPECT_EQ(error.message_index(), std::nullopt);
    EXPECT_NE(std::string(error.what()).find("context message 0"), std::string::npos) << error.what();
  }
}

TEST(ChatEncoder, EffortLevelsFollowTheVariant) {
  const auto conversation = messages(R"([{"role": "user", "content": "q"}])");
  const auto encode = [&](ChatVariant variant, EffortLevel effort) {
    const ChatOptions options{
        .variant = variant, .thinking_mode = ThinkingMode::Thinking, .reasoning_effort = {effort}};
    return encode_chat(conversation, options).text;
  };
  using enum EffortLevel;
  const std::string preview_none = encode(ChatVariant::V4Preview, None);
  EXPECT_EQ(preview_none, encode(ChatVariant::V4Preview, High));
  EXPECT_EQ(preview_none, encode(ChatVariant::V4_0731, None));
  EXPECT_EQ(preview_none, encode(ChatVariant::V4_0731, Low));
  EXPECT_EQ(preview_none, encode(ChatVariant::V4_0731, Empty));
  EXPECT_EQ(encode(ChatVariant::V4Preview, Max), encode(ChatVariant::V4_0731, High));
  EXPECT_NE(encode(ChatVariant::V4_0731, High), encode(ChatVariant::V4_0731, Max));
  EXPECT_EQ(encode(ChatVariant::V4Vision, Max), encode(ChatVariant::V4_0731, Max));
  EXPECT_THROW(encode(ChatVariant::V4Preview, Low), ChatError);
  EXPECT_THROW(encode(ChatVariant::V4Preview, Empty), ChatError);
  EXPECT_THROW(encode(ChatVariant::V4_0731, Number), ChatError);
  EXPECT_EQ(encode(ChatVariant::V4_1, None), encode(ChatVariant::V4_1, High));
  EXPECT_NE(encode(ChatVariant::V4_1, Low), encode(ChatVariant::V4_1, High));
}

TEST(ChatEncoder, PromptEndsWithTheOpenedAnswer) {
  const auto conversation = messages(R"([{"role": "user", "content": "q"}])");
  EXPECT_TRUE(encode_chat(conversation, {}).text.ends_with("<｜Assistant｜></think>"));
  EXPECT_TRUE(
      encode_chat(conversation, {.thinking_mode = ThinkingMode::Thinking}).text.ends_with("<｜Assistant｜><think>"));
}

TEST(ChatEncoder, BothReasoningKeysAreRead) {
  const auto encode = [](const std::string& key) {
    return encode_chat(messages(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", ")" + key +
                                R"(": "r"}])"),
                       {.thinking_mode = ThinkingMode::Thinking})
        .text;
  };
  EXPECT_TRUE(encode("reasoning").ends_with("<think>r</think>a<｜end▁of▁sentence｜>"));
  EXPECT_EQ(encode("reasoning"), encode("reasoning_content"));
}

TEST(ChatEncoder, PartsTileTheBodies) {
  const auto conversation = messages(R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "r1", "tool_calls": [{"function": {"name": "f"}}]},
      {"role": "tool", "content": "t"},
      {"role": "assistant", "content": "", "reasoning_content": "r2", "wo_eos": true}])");
  const EncodedChat chat = encode_chat(conversation, {.thinking_mode = ThinkingMode::Thinking, .drop_thinking = false});
  ASSERT_EQ(chat.bodies.size(), 2u);
  const auto text_of = [&](const AssistantBody& body) { return chat.text.substr(body.begin, body.end - body.begin); };
  EXPECT_EQ(
      text_of(chat.bodies[0]),
      "r1</think>a1\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
      "<｜end▁of▁sentence｜>");
  EXPECT_EQ(text_of(chat.bodies[1]), "r2</think>");
  EXPECT_EQ(chat.bodies[0].message_index, 1u);
  EXPECT_EQ(chat.bodies[1].message_index, 3u);
  EXPECT_FALSE(chat.bodies[0].in_last_turn);  // the result of the tool opened another turn
  EXPECT_TRUE(chat.bodies[1].in_last_turn);
  ASSERT_EQ(chat.bodies[0].parts.size(), kNumComponents);
  size_t at = chat.bodies[0].begin;
  for (size_t i = 0; i < kNumComponents; ++i) {
    EXPECT_EQ(chat.bodies[0].parts[i].component, static_cast<Component>(i));
    EXPECT_EQ(chat.bodies[0].parts[i].begin, at);
    at = chat.bodies[0].parts[i].end;
  }
  EXPECT_EQ(at, chat.bodies[0].end);
  EXPECT_EQ(chat.bodies[1].parts.size(), 2u);
}

}  // namespace
}  // namespace asterism::data
