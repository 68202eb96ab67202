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

/// The encoded text of a chat row.
std::string encoded(const std::string& row, ChatVariant variant = ChatVariant::V4_0731) {
  ChatDefaults defaults;
  defaults.chat.variant = variant;
  const ChatRow chat = read_chat_row(json(row), defaults);
  return encode_chat(chat.conversation, chat.chat).text;
}

TEST(ChatEncoder, ToolsOfTheRowBelongToTheFirstMessage) {
  const std::string tools = R"("tools": [{"function": {"name": "f", "n": [1.0, 1e16, 12345678901234567890123]}}], )";
  const std::string schema = R"({"name": "f", "n": [1.0, 1e+16, 12345678901234567890123]})";
  const std::string first = encoded("{" + tools + R"("messages": [{"role": "developer", "content": "d"}]})");
  EXPECT_TRUE(first.starts_with("<｜begin▁of▁sentence｜><｜User｜>d\n\n## Tools\n")) << first;
  EXPECT_NE(first.find("\n\n" + schema + "\n\nYou MUST"), std::string::npos) << first;
  const std::string same = R"({"role": "system", "content": "d", "tools": [{"function": )" + schema + "}]}";
  EXPECT_NE(encoded("{" + tools + R"("messages": [)" + same + "]}").find("## Tools"), std::string::npos);
  const std::string other = R"({"role": "system", "tools": [{"function": {"name": "g"}}]})";
  EXPECT_THROW(encoded("{" + tools + R"("messages": [)" + other + "]}"), ChatError);
  EXPECT_EQ(encoded(R"({"tool_choice": "none", "messages": [)" + other + "]}"), "<｜begin▁of▁sentence｜>");
  EXPECT_EQ(encoded(R"({"response_format": {"a": 1}, "messages": [{"role": "user", "content": "q"}]})"),
            "<｜begin▁of▁sentence｜>\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to "
            "reply:\n{\"a\": 1}<｜User｜>q<｜Assistant｜></think>");
}

TEST(ChatEncoder, ToolsAnywhereKeepTheReasoning) {
  const std::string turns = R"({"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning": "r"}, {"role": "user", "content": "p")";
  const auto keeps = [&](const std::string& row) { return encoded(row).find("<think>r</think>") != std::string::npos; };
  EXPECT_FALSE(keeps(R"({"messages": [)" + turns + "}]}"));
  EXPECT_TRUE(keeps(R"({"tools": [{"function": {}}], "messages": [)" + turns + "}]}"));
  EXPECT_FALSE(keeps(R"({"tools": [{"function": {}}], "tool_choice": "none", "messages": [)" + turns + "}]}"));
  EXPECT_FALSE(keeps(R"({"tools": [], "messages": [)" + turns + "}]}"));
  EXPECT_FALSE(keeps(R"({"messages": [)" + turns + R"(, "tools": [{"function": {}}]}]})"));  // lost in the merge
  EXPECT_TRUE(keeps(R"({"messages": [)" + turns + R"(}, {"role": "system", "tools": [{"function": {}}]}]})"));
}

TEST(ChatEncoder, MergedUsersKeepTheFirstTask) {
  const auto encode = [](const char* first, const char* second, ChatVariant variant = ChatVariant::V4_0731) {
    return encoded(std::string(R"({"add_bos": false, "messages": [{"role": "user", "content": "a")") + first +
                       R"(}, {"role": "user", "content": "b")" + second + "}]}",
                   variant);
  };
  const char* query = R"(, "task": "query")";
  EXPECT_EQ(encode("", query), "<｜User｜>a\n\nb<｜Assistant｜></think>");
  EXPECT_EQ(encode("", query, ChatVariant::V4_1), "<｜User｜>a\n\nb<｜query｜>");
  EXPECT_EQ(encode(query, ""), "<｜User｜>a<｜User｜>b<｜Assistant｜></think>");
  EXPECT_EQ(encoded(R"({"add_bos": false, "messages": [{"role": "user", "content": "a", "task": "query"},
                        {"role": "tool", "content": "t"}]})"),
            "<｜User｜>a\n\n<tool_result>t</tool_result><｜query｜>");
  // An unknown task counts only where its token would be written.
  EXPECT_EQ(encode(R"(, "task": "unknown")", ""), "<｜User｜>a<｜User｜>b<｜Assistant｜></think>");
}

TEST(ChatEncoder, ResultsWithoutAKnownCallCountAsTheFirst) {
  EXPECT_EQ(encoded(R"({"add_bos": false, "messages": [{"role": "assistant", "tool_calls": [
          {"function": {"name": "f"}}, {"id": 7, "function": {"name": "g"}}, {"id": "c", "function": {"name": "h"}}]},
          {"role": "tool", "content": "c", "tool_call_id": "c"}, {"role": "user", "content": "u"},
          {"role": "tool", "content": "7", "tool_call_id": 7},
          {"role": "tool", "content": "?", "tool_call_id": "x"}]})"),
            "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n<｜DSML｜invoke "
            "name=\"g\">\n\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"h\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
            "<｜end▁of▁sentence｜><｜User｜><tool_result>?</tool_result>\n\nu\n\n<tool_result>7</tool_result>\n\n"
            "<tool_result>c</tool_result><｜Assistant｜></think>");
}

TEST(ChatEncoder, DroppedMessagesAreNotRead) {
  const std::string later =
      R"({"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning": "r"}]})";
  const char* expected = "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>r</think>a<｜end▁of▁sentence｜>";
  EXPECT_EQ(encoded(R"({"messages": [{"role": "developer", "content": ""}, )" + later), expected);
  EXPECT_EQ(encoded(R"({"messages": [{"role": "observer"}, )" + later), expected);
  EXPECT_THROW(encoded(R"({"messages": [{"role": "direct_search_results"}, )" + later), ChatError);
  EXPECT_THROW(encoded(R"({"thinking_mode": "chat", "messages": [{"role": "observer"}, )" + later), ChatError);
}

TEST(ChatEncoder, ContextIsKnownButNotWritten) {
  const auto continued = [](const std::string& context, const std::string& list, const char* options = "") {
    return encoded("{" + std::string(options) + R"("context": [)" + context + R"(], "messages": [)" + list + "]}");
  };
  const std::string user = R"({"role": "user", "content": "q"})", answer = R"({"role": "assistant", "content": "a"})";
  EXPECT_EQ(continued(user, user), "<｜User｜>q<｜Assistant｜></think>");  // no merge across the border
  EXPECT_EQ(
      continued(R"({"role": "user", "content": "q", "task": "query"})", answer, R"("thinking_mode": "thinking",)"),
      "a<｜end▁of▁sentence｜>");
  EXPECT_EQ(continued(user, answer, R"("thinking_mode": "thinking", "reasoning_effort": "max",)"),
            "</think>a<｜end▁of▁sentence｜>");
  EXPECT_EQ(continued("", answer), "<｜begin▁of▁sentence｜>a<｜end▁of▁sentence｜>");
  // The order of results follows calls of the context; tools given beside the messages belong to it.
  EXPECT_EQ(continued(R"({"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}},
                         {"id": "2", "function": {"name": "f"}}]})",
                      R"({"role": "tool", "tool_call_id": "2", "content": "2"},
                         {"role": "tool", "tool_call_id": "1", "content": "1"})",
                      R"("tools": [{"function": {}}],)"),
            "<｜User｜><tool_result>1</tool_result>\n\n<tool_result>2</tool_result><｜Assistant｜></think>");
  // The official count of messages to write: a developer that only the whole conversation drops takes one away.
  EXPECT_EQ(
      continued(R"({"role": "developer", "content": "d"}, {"role": "assistant", "content": "x", "reasoning": "r"})",
                user + ", " + answer, R"("thinking_mode": "thinking",)"),
      "</think>a<｜end▁of▁sentence｜>");
}

TEST(ChatEncoder, ReasoningCanStayOpen) {
  const auto open = [](const std::string& rest) {
    return encoded(R"({"continue_reasoning": true, "messages": [{"role": "user", "content": "q"},
                       {"role": "assistant", "reasoning": "so far", )" +
                   rest + "}]}");
  };
  EXPECT_TRUE(open(R"("wo_eos": true)").ends_with("<think>so far"));
  EXPECT_TRUE(open(R"("wo_eos": true, "content": "")").ends_with("<think>so far"));
  EXPECT_TRUE(open(R"("wo_eos": true, "content": "a")").ends_with("<think>so far</think>a"));
  EXPECT_TRUE(open(R"("wo_eos": false)").ends_with("<think>so far</think><｜end▁of▁sentence｜>"));
}

TEST(ChatEncoder, UnframeableCallsAreRefusedOnRequest) {
  const std::string list = R"("messages": [{"role": "assistant", "tool_calls": [
      {"function": {"name": "f", "arguments": {"k": "</｜DSML｜parameter>"}}}]}]})";
  EXPECT_NE(encoded("{" + list).find("</｜DSML｜parameter></｜DSML｜parameter>"), std::string::npos);
  EXPECT_THROW(encoded(R"({"reject_unframeable": true, )" + list), ChatError);
}

TEST(ChatEncoder, ContentsAreWhatTheRowHolds) {
  const ChatRow row = read_chat_row(json(R"({"thinking_mode": "thinking", "tools": [{"function": {"name": "g"}}],
      "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}, {"type": "image"}]},
                   {"role": "assistant", "reasoning": "r", "content": "c",
                    "tool_calls": [{"id": "1", "function": {"name": "n", "arguments": {"k": "v", "m": 1}}}]},
                   {"role": "tool", "content": "t", "tool_call_id": "1"}]})"),
                                    {});
  const EncodedChat chat = encode_chat(row.conversation, row.chat);
  std::string contents, indices;
  for (const ContentRange& content : chat.contents) {
    contents += chat.text.substr(content.range.begin, content.range.size()) + "|";
    indices += content.message_index ? std::to_string(*content.message_index) : "-";
  }
  EXPECT_EQ(contents, "{\"name\": \"g\"}|u|r|c|n|k|v|m|1|t|");
  EXPECT_EQ(indices, "-011111112");
}

TEST(ChatEncoder, SystemMessagesOfTheNextVersionAreAnswered) {
  const auto text = [](const std::string& list, const char* mode) {
    return encoded(std::string(R"({"add_bos": false, "thinking_mode": ")") + mode + R"(", "messages": [)" + list + "]}",
                   ChatVariant::V4_1);
  };
  const std::string system = R"({"role": "system", "content": "s"})";
  const std::string answer = R"({"role": "assistant", "content": "a", "reasoning": "r"})";
  EXPECT_EQ(text(system + "," + answer, "chat"), "<｜System｜>sa<｜end▁of▁sentence｜>");
  const std::string thinking = text(system + "," + answer + "," + system + "," + answer, "thinking");
  EXPECT_TRUE(thinking.starts_with("<｜System｜>Reasoning Effort: 75 (")) << thinking;
  EXPECT_TRUE(
      thinking.ends_with("\n\nsa<｜end▁of▁sentence｜><｜System｜>s<｜Assistant｜><think>r</think>a"
                         "<｜end▁of▁sentence｜>"))
      << thinking;
}

}  // namespace
}  // namespace asterism::data
