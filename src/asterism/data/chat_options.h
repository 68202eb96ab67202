#pragma once

#include <string_view>

#include "asterism/data/chat_error.h"
#include "asterism/data/json_value.h"

namespace asterism::data {

/// Released encoder versions. V4Preview and V4_0731 differ in the reasoning effort only. V4Vision is V4_0731: pictures
/// are placeholder text in every version. V4_1 has a system header, efforts from 1 to 100 and other tags of tool calls.
enum class ChatVariant { V4Preview, V4_0731, V4Vision, V4_1 };
enum class ThinkingMode { Chat, Thinking };

/// None: not given, each variant has its own standard. Empty: the text "", which the official modules tell from None.
enum class EffortLevel { None, Empty, Low, High, Max, Number };
struct ReasoningEffort {
  EffortLevel level = EffortLevel::None;
  int number = 0;  // 1 to 100, of EffortLevel::Number
  bool operator==(const ReasoningEffort&) const = default;
};

/// What becomes of a text of the row that spells a special token, such as "<｜User｜>".
///   Allow   it becomes that token, as in the official encoder.
///   Reject  it is an error.
///   AsText  it is tokenised as the plain characters it consists of.
enum class SpecialInContent { Allow, Reject, AsText };

/// Names as users write them: "v4-preview", "v4-0731", "v4-flash-vision", "v4.1"; "chat", "thinking"; "none", "low",
/// "high", "max", ""; "allow", "reject", "as_text". ChatError for any other name.
ChatVariant chat_variant(std::string_view name);
const char* variant_name(ChatVariant variant);
ThinkingMode thinking_mode(std::string_view name);
ReasoningEffort reasoning_effort(std::string_view name);
SpecialInContent special_in_content(std::string_view name);

/// The effort as a row gives it: one of the names, or a whole number from 1 to 100.
ReasoningEffort effort_of(const JsonValue& value);

struct ChatOptions {
  ChatVariant variant = ChatVariant::V4_0731;
  ThinkingMode thinking_mode = ThinkingMode::Chat;
  bool drop_thinking = true;  // leave the reasoning of earlier turns out, unless tools are declared
  ReasoningEffort reasoning_effort{};
  bool add_default_bos_token = true;
  bool omit_tools = false;          // tool_choice "none": as if no message declared tools
  bool continue_reasoning = false;  // a last answer of reasoning alone with wo_eos stays open: no </think> follows it
  bool reject_unframeable = false;  // error for names, keys and values of calls that no parser can read back
  SpecialInContent special_in_content = SpecialInContent::Allow;
};

}  // namespace asterism::data
