#include "asterism/data/chat_row.h"

#include <gtest/gtest.h>

#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

constexpr const char* kMessages = R"("messages": [{"role": "user", "content": "q"},
                                                  {"role": "assistant", "content": "a", "reasoning": "r"}])";

ChatRow read(const std::string& options, const ChatDefaults& defaults = {}) {
  return read_chat_row(json("{" + options + (options.empty() ? "" : ", ") + kMessages + "}"), defaults);
}

std::string category(const std::string& options) {
  try {
    read(options);
  } catch (const ChatError& error) {
    return error.category();
  }
  return "none";
}

TEST(ChatRow, OptionsOfTheRowWin) {
  ChatDefaults defaults;
  defaults.chat.variant = ChatVariant::V4_1;
  defaults.chat.reasoning_effort = {EffortLevel::High};
  defaults.loss.history = History::All;
  const ChatRow plain = read("", defaults);
  EXPECT_EQ(plain.chat.variant, ChatVariant::V4_1);
  EXPECT_EQ(plain.chat.thinking_mode, ThinkingMode::Thinking);
  EXPECT_EQ(plain.chat.reasoning_effort.level, EffortLevel::High);
  EXPECT_EQ(plain.loss.history, History::All);
  const ChatRow row = read(R"("thinking_mode": "chat", "drop_thinking": false, "reasoning_effort": 33,
      "add_bos": false, "history": "split", "component_weights": {"tool_calls": 2, "eos": 0.5},
      "special_in_content": "as_text", "continue_reasoning": true, "reject_unframeable": true, "tool_choice": "none",
      "tools": [1], "response_format": {"type": "json"}, "context": [2], "id": "some other key")",
                           defaults);
  EXPECT_EQ(row.chat.thinking_mode, ThinkingMode::Chat);
  EXPECT_FALSE(row.chat.drop_thinking);
  EXPECT_EQ(row.chat.reasoning_effort, (ReasoningEffort{EffortLevel::Number, 33}));
  EXPECT_FALSE(row.chat.add_default_bos_token);
  EXPECT_EQ(row.chat.special_in_content, SpecialInContent::AsText);
  EXPECT_TRUE(row.chat.continue_reasoning);
  EXPECT_TRUE(row.chat.reject_unframeable);
  EXPECT_TRUE(row.chat.omit_tools);
  EXPECT_EQ(row.loss.history, History::Split);
  EXPECT_EQ(row.loss.component_weights, (std::array<float, kNumComponents>{1, 1, 1, 2, 0.5}));
  EXPECT_EQ(to_json(row.conversation.tools), "[1]");
  EXPECT_EQ(to_json(row.conversation.context), "[2]");
  EXPECT_EQ(to_json(row.conversation.response_format), R"({"type": "json"})");
  EXPECT_EQ(row.conversation.messages.size(), 2u);
}

TEST(ChatRow, NullIsAsGoodAsAbsent) {
  const ChatRow row = read(R"("thinking_mode": null, "drop_thinking": null, "reasoning_effort": null, "history": null,
      "tool_choice": null, "special_in_content": null, "component_weights": null, "context": null, "tools": null)");
  EXPECT_EQ(row.chat.thinking_mode, ThinkingMode::Thinking);
  EXPECT_TRUE(row.chat.drop_thinking);
  EXPECT_EQ(encode_chat(row.conversation, row.chat).text,
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>r</think>a<｜end▁of▁sentence｜>");
}

TEST(ChatRow, FixedThinkingWinsOverTheRowWhichIsCheckedAllTheSame) {
  ChatDefaults defaults;
  defaults.thinking = Thinking::Chat;
  EXPECT_EQ(read(R"("thinking_mode": "thinking")", defaults).chat.thinking_mode, ThinkingMode::Chat);
  EXPECT_THROW(read(R"("thinking_mode": "auto")", defaults), ChatError);
}

TEST(ChatRow, WrongOptionsHaveTheirCategory) {
  EXPECT_EQ(category(R"("thinking_mode": "auto")"), "invalid_thinking_mode");
  EXPECT_EQ(category(R"("thinking_mode": true)"), "invalid_thinking_mode");
  EXPECT_EQ(category(R"("drop_thinking": "no")"), "invalid_option");
  EXPECT_EQ(category(R"("add_bos": 1)"), "invalid_option");
  EXPECT_EQ(category(R"("reasoning_effort": "ultra")"), "invalid_reasoning_effort");
  EXPECT_EQ(category(R"("reasoning_effort": 0.5)"), "invalid_reasoning_effort");
  EXPECT_EQ(category(R"("history": "none")"), "invalid_history");
  EXPECT_EQ(category(R"("special_in_content": "drop")"), "invalid_special_in_content");
  EXPECT_EQ(category(R"("tool_choice": "required")"), "invalid_tool_choice");
  EXPECT_EQ(category(R"("tool_choice": {"type": "function"})"), "invalid_tool_choice");
  EXPECT_EQ(category(R"("component_weights": [1])"), "invalid_loss");
  EXPECT_EQ(category(R"("component_weights": {"thinking": 1})"), "invalid_loss");
  EXPECT_EQ(category(R"("component_weights": {"eos": -1})"), "invalid_loss");
  EXPECT_EQ(category(R"("component_weights": {"eos": 1e999})"), "invalid_loss");
  EXPECT_EQ(category(R"("component_weights": {"eos": true})"), "invalid_loss");
}

TEST(ChatRow, WhatShouldNotBeTrainedIsRefused) {
  const auto refused = [](std::string_view list) -> std::string {
    try {
      check_trainable(messages(list));
    } catch (const ChatError& error) {
      return error.category() + " " + std::to_string(error.message_index().value_or(99));
    }
    return "none";
  };
  EXPECT_EQ(refused(R"([{"role": "user"}, {"role": "assistant"}, {"role": "assistant"}])"), "consecutive_assistants 2");
  EXPECT_EQ(refused(R"([{"role": "user"}, {"role": "assistant", "task": "title"}, {"role": "assistant"}])"), "none");
  EXPECT_EQ(refused(R"([{"role": "assistant"}, {"role": "tool"}, {"role": "assistant"}])"), "none");
  EXPECT_EQ(refused(R"([{"role": "function"}, {"role": "user"}])"), "unknown_role 0");
  EXPECT_EQ(refused(R"([{"role": "user"}, {"role": "direct_search_results"}])"), "unknown_role 1");
}

}  // namespace
}  // namespace asterism::data
