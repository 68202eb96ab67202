#include "asterism/data/chat_row.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

namespace asterism::data {
namespace {

[[noreturn]] void option_error(const std::string& category, const std::string& explanation) {
  throw ChatError(category, std::nullopt, explanation);
}

/// The text of a key, or nothing when it is absent.
const std::string* name_of(const JsonValue& row, const std::string& key) {
  const JsonValue& value = row.get(key);
  if (value.is_null()) return nullptr;
  if (!value.is_string()) option_error("invalid_" + key, key + " must be text, found " + value.type_name());
  return &value.as_string();
}

void read_flag(const JsonValue& row, const char* key, bool& flag) {
  const JsonValue& value = row.get(key);
  if (value.is_null()) return;
  if (!value.is_boolean()) option_error("invalid_option", std::string(key) + " must be true or false");
  flag = value.as_boolean();
}

void read_component_weights(const JsonValue& row, LossOptions& loss) {
  const JsonValue& weights = row.get("component_weights");
  if (weights.is_null()) return;
  if (!weights.is_object()) option_error("invalid_loss", "component_weights must be an object");
  for (const auto& [name, value] : weights.as_object()) {
    const auto known = std::find(kComponentNames.begin(), kComponentNames.end(), name);
    if (known == kComponentNames.end()) {
      option_error("invalid_loss", "component_weights has \"" + name +
                                       "\"; known are reasoning, think_close, content, tool_calls and eos");
    }
    const float weight = value.is_number() ? static_cast<float>(value.as_number()) : -1.0f;
    if (!(weight >= 0.0f) || !std::isfinite(weight)) {
      option_error("invalid_loss", "component_weights." + name + " must be a finite number, at least 0");
    }
    loss.component_weights[static_cast<size_t>(known - kComponentNames.begin())] = weight;
  }
}

/// Asking for a call is a constraint on what is generated, not a part of the text.
bool hides_tools(const JsonValue& row) {
  const JsonValue& choice = row.get("tool_choice");
  if (choice.is_null()) return false;
  if (choice.is_string() && choice.as_string() == "none") return true;
  if (choice.is_string() && choice.as_string() == "auto") return false;
  option_error("invalid_tool_choice", "tool_choice must be none or auto: the encoding has no way to demand a call");
}

JsonValue take(JsonValue& row, std::string_view key) {
  for (auto& [name, value] : row.as_object()) {
    if (name == key) return std::exchange(value, JsonValue());
  }
  return {};
}

ThinkingMode mode_of(const JsonValue& row, const Conversation& conversation, Thinking choice) {
  const std::string* name = name_of(row, "thinking_mode");
  // A row's own value is checked even where the options override it.
  const ThinkingMode own = name != nullptr               ? thinking_mode(*name)
                           : has_reasoning(conversation) ? ThinkingMode::Thinking
                                                         : ThinkingMode::Chat;
  if (choice == Thinking::Auto) return own;
  return choice == Thinking::Thinking ? ThinkingMode::Thinking : ThinkingMode::Chat;
}

bool is_role(const JsonValue& message, std::string_view role) {
  const JsonValue& value = message.get("role");
  return value.is_string() && value.as_string() == role;
}

}  // namespace

ChatRow read_chat_row(JsonValue row, const ChatDefaults& defaults) {
  ChatRow result{{}, defaults.chat, defaults.loss};
  if (row.get("messages").is_null()) option_error("unknown_kind", "a chat row needs messages");
  result.conversation = {take(row, "messages"), take(row, "context"), take(row, "tools"), take(row, "response_format")};
  ChatOptions& chat = result.chat;
  chat.thinking_mode = mode_of(row, result.conversation, defaults.thinking);
  if (!row.get("reasoning_effort").is_null()) chat.reasoning_effort = effort_of(row.get("reasoning_effort"));
  read_flag(row, "drop_thinking", chat.drop_thinking);
  read_flag(row, "add_default_bos_token", chat.add_default_bos_token);
  read_flag(row, "add_bos", chat.add_default_bos_token);
  read_flag(row, "continue_reasoning", chat.continue_reasoning);
  read_flag(row, "reject_unframeable", chat.reject_unframeable);
  if (const auto* name = name_of(row, "special_in_content")) chat.special_in_content = special_in_content(*name);
  chat.omit_tools = chat.omit_tools || hides_tools(row);
  if (const auto* name = name_of(row, "history")) result.loss.history = history(*name);
  read_component_weights(row, result.loss);
  return result;
}

void check_trainable(const Conversation& conversation) {
  static constexpr std::string_view kKnownRoles[] = {"system", "developer",       "user",
                                                     "tool",   "latest_reminder", "assistant"};
  const auto& messages = conversation.messages.as_array();
  bool after_answer = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto has = [&](std::string_view role) { return is_role(messages[i], role); };
    if (std::none_of(std::begin(kKnownRoles), std::end(kKnownRoles), has)) {
      throw ChatError("unknown_role", i,
                      "the role must be system, developer, user, latest_reminder, assistant or tool");
    }
    const bool answer = has("assistant");
    if (answer && after_answer) {
      throw ChatError("consecutive_assistants", i, "this is the second assistant message in a row; merge the two");
    }
    after_answer = answer && messages[i].get("task").is_null();
  }
}

}  // namespace asterism::data
