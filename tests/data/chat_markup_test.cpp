#include "asterism/data/chat_markup.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

// The texts as a whole are compared in chat_encoder_test.cpp, with those of the official module.

TEST(ChatMarkup, TagsOfTheNextVersionHaveASpace) {
  EXPECT_EQ(dsml_tags(ChatVariant::V4_0731).calls, "｜DSML｜tool_calls");
  EXPECT_EQ(dsml_tags(ChatVariant::V4_1).calls, "｜DSML｜ calls");
  EXPECT_NE(tools_frame(ChatVariant::V4Preview).before.find("<｜DSML｜invoke name=\"$TOOL_NAME\">"), std::string::npos);
  EXPECT_NE(tools_frame(ChatVariant::V4_1).before.find("</｜DSML｜ invoke>"), std::string::npos);
}

TEST(ChatMarkup, TasksAreTokens) {
  EXPECT_EQ(task_token("read_url"), "<｜read_url｜>");
  EXPECT_EQ(task_token("search"), "");
  EXPECT_EQ(task_token(""), "");
}

TEST(ChatMarkup, EffortsAreCheckedButNotWrittenInChatMode) {
  ChatOptions options{.thinking_mode = ThinkingMode::Chat, .reasoning_effort = {EffortLevel::Max}};
  EXPECT_EQ(effort_text(options), "");
  options.reasoning_effort = {EffortLevel::Number, 33};
  EXPECT_THROW(effort_text(options), ChatError);
  options.variant = ChatVariant::V4_1;
  EXPECT_EQ(effort_text(options), "");
  options.thinking_mode = ThinkingMode::Thinking;
  EXPECT_TRUE(effort_text(options).starts_with("Reasoning Effort: 33 (range"));
  options.reasoning_effort = {EffortLevel::Empty};
  EXPECT_TRUE(effort_text(options).starts_with("Reasoning Effort: 75 (range"));
}

}  // namespace
}  // namespace asterism::data
