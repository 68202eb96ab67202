#pragma once

#include <string>
#include <string_view>

#include "asterism/data/chat_options.h"

namespace asterism::data {

// The strings that the chat encoding writes around what the messages hold (encoding-spec 1.1).
inline constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kSystemHeader = "<｜System｜>";  // v4.1 only
inline constexpr std::string_view kUserHeader = "<｜User｜>";
inline constexpr std::string_view kAssistantHeader = "<｜Assistant｜>";
inline constexpr std::string_view kReminderHeader = "<｜latest_reminder｜>";
inline constexpr std::string_view kThinkOpen = "<think>";
inline constexpr std::string_view kThinkClose = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";
inline constexpr std::string_view kImagePlaceholder = "<｜deepseek_image｜>";
inline constexpr std::string_view kBlankLine = "\n\n";

/// The names of the elements of a tool call, with what stands in front of them in a tag: "｜DSML｜invoke".
struct DsmlTags {
  std::string_view calls, invoke, parameter;
};
const DsmlTags& dsml_tags(ChatVariant variant);

/// The token that asks for a quick task, "<｜query｜>"; empty for an unknown name.
std::string task_token(std::string_view task);
inline constexpr std::string_view kActionTask = "action";

/// What stands in front of and behind the schemas that tell the model its tools.
struct ToolsFrame {
  std::string before, after;
};
ToolsFrame tools_frame(ChatVariant variant);

inline constexpr std::string_view kResponseFormatIntroduction =
    "## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n";

/// The text in front of the first message that asks for more or less thought; empty in chat mode and for the levels
/// that have none. ChatError (invalid_reasoning_effort) for a level that the variant does not know, in chat mode too.
std::string effort_text(const ChatOptions& options);

}  // namespace asterism::data
