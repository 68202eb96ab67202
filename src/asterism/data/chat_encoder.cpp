#include "asterism/data/chat_encoder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kUserHeader = "<｜User｜>";
constexpr std::string_view kAssistantHeader = "<｜Assistant｜>";
constexpr std::string_view kReminderHeader = "<｜latest_reminder｜>";
constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";
constexpr std::string_view kBlankLine = "\n\n";

constexpr std::string_view kAbsoluteEffort =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";
constexpr std::string_view kBeyondEffort =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem into its most fundamental components, trace every causal chain to its root, and resolve the underlying "
    "cause rather than any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no assumption remains unchecked and no error remains undiscovered.\n\n";

enum class Role { System, Developer, User, LatestReminder, Assistant };

constexpr std::pair<std::string_view, Role> kRoles[] = {
    {"system", Role::System},       {"developer", Role::Developer},
    {"user", Role::User},           {"latest_reminder", Role::LatestReminder},
    {"assistant", Role::Assistant},
};

constexpr std::string_view kTasks[] = {"action", "query", "authority", "domain", "title", "read_url"};

struct Message {
  Role role;
  size_t index;  // in the caller's messages
  std::string content;
  std::string reasoning;
  bool write_eos = true;
};

bool is_user(Role role) {
  return role == Role::User || role == Role::Developer;
}

[[noreturn]] void unsupported(const std::string& feature, std::optional<size_t> index = std::nullopt) {
  throw ChatError("unsupported_feature", index, feature + " cannot be encoded yet: this comes with later work");
}

/// The value of `key`, or null (as a static) when the message has none.
const Json& value_or_null(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

Role role_of(const Json& message, size_t index) {
  const Json& role = value_or_null(message, "role");
  if (!role.is_string()) throw ChatError("unknown_role", index, "a message needs a role, given as text");
  const auto& name = role.get_ref<const std::string&>();
  if (name == "tool") unsupported("a tool message", index);
  for (const auto& [known, value] : kRoles) {
    if (name == known) return value;
  }
  throw ChatError("unknown_role", index,
                  "the role is \"" + name + "\"; known are system, developer, user, latest_reminder, assistant");
}

std::string text_of_part(const Json& part, size_t index) {
  if (!part.is_object() || !value_or_null(part, "type").is_string()) {
    throw ChatError("invalid_content", index, "a content part must be an object with a type");
  }
  const auto& type = part.at("type").get_ref<const std::string&>();
  if (type != "text") unsupported("a content part of type \"" + type + "\"", index);
  const Json& text = value_or_null(part, "text");
  if (!text.is_string()) throw ChatError("invalid_content", index, "a text part needs its text, as a string");
  return text.get<std::string>();
}

std::string content_of(const Json& message, Role role, size_t index) {
  const auto found = message.find("content");
  if (found == message.end()) {
    // Messages that only carry something else are usual for these two; elsewhere it is a misspelt key.
    if (role == Role::Assistant || role == Role::System) return "";
    throw ChatError("invalid_content", index, "the message has no content");
  }
  // The official module formats a missing reminder as Python prints it.
  if (found->is_null()) return role == Role::LatestReminder ? "None" : "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) {
    throw ChatError("invalid_content", index,
                    std::string("content must be text or a list of text parts, found ") + found->type_name());
  }
  std::string joined;
  for (size_t i = 0; i < found->size(); ++i) {
    if (i > 0) joined += kBlankLine;
    joined += text_of_part((*found)[i], index);
  }
  return joined;
}

std::string reasoning_of(const Json& message, size_t index) {
  std::string reasoning;
  for (const char* key : {"reasoning_content", "reasoning"}) {
    const Json& value = value_or_null(message, key);
    if (!is_truthy(value)) continue;
    if (!value.is_string()) {
      throw ChatError("invalid_reasoning", index, std::string(key) + " must be text, found " + value.type_name());
    }
    const auto& text = value.get_ref<const std::string&>();
    if (!reasoning.empty() && reasoning != text) {
      throw ChatError("conflicting_reasoning", index, "reasoning_content and reasoning differ; keep one of them");
    }
    reasoning = text;
  }
  return reasoning;
}

/// Features that would change the text and are not written here. User messages lose tools and response_format in the
/// official merge, so there these keys mean nothing.
void reject_unsupported(const Json& message, Role role, size_t index) {
  const Json& task = value_or_null(message, "task");
  if (!task.is_null() && (role == Role::User || role == Role::Assistant)) {
    const bool known = task.is_string() && std::count(std::begin(kTasks), std::end(kTasks), task.get<std::string>());
    if (known) unsupported("a task", index);
    throw ChatError("invalid_task", index, "known tasks are action, query, authority, domain, title, read_url");
  }
  if (role == Role::User) return;
  if (is_truthy(value_or_null(message, "tools"))) unsupported("a tools list", index);
  if (is_truthy(value_or_null(message, "tool_calls"))) unsupported("a tool call", index);
  if (is_truthy(value_or_null(message, "response_format"))) unsupported("a response format", index);
}

bool writes_eos(const Json& message, size_t index) {
  const Json& wo_eos = value_or_null(message, "wo_eos");
  if (wo_eos.is_null()) return true;
  if (!wo_eos.is_boolean()) throw ChatError("invalid_wo_eos", index, "wo_eos must be true or false");
  return !wo_eos.get<bool>();
}

Message read_message(const Json& message, size_t index) {
  if (!message.is_object()) {
    throw ChatError("invalid_message", index, std::string("a message must be an object, found ") + message.type_name());
  }
  Message result{.role = role_of(message, index), .index = index, .content = {}, .reasoning = {}};
  reject_unsupported(message, result.role, index);
  result.content = content_of(message, result.role, index);
  if (result.role == Role::Developer && result.content.empty()) {
    throw ChatError("empty_developer", index, "a developer message needs content");
  }
  if (result.role == Role::Assistant) {
    result.reasoning = reasoning_of(message, index);
    result.write_eos = writes_eos(message, index);
  }
  return result;
}

/// All messages checked, with consecutive user messages joined into one.
std::vector<Message> read_messages(const Json& messages) {
  if (!messages.is_array()) {
    throw ChatError("invalid_messages", std::nullopt,
                    std::string("messages must be a list, found ") + messages.type_name());
  }
  std::vector<Message> result;
  result.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    Message message = read_message(messages[i], i);
    if (message.role == Role::User && !result.empty() && result.back().role == Role::User) {
      result.back().content.append(kBlankLine).append(message.content);
    } else {
      result.push_back(std::move(message));
    }
  }
  return result;
}

/// Position of the last user or developer message, -1 without one.
ptrdiff_t last_user(const std::vector<Message>& messages) {
  const auto found = std::find_if(messages.rbegin(), messages.rend(), [](const auto& m) { return is_user(m.role); });
  return messages.rend() - found - 1;
}

/// Earlier assistant messages lose their reasoning; earlier developer messages go, as in the official module.
void drop_history_reasoning(std::vector<Message>& messages) {
  const size_t kept_from = static_cast<size_t>(std::max<ptrdiff_t>(last_user(messages), 0));
  std::vector<Message> kept;
  kept.reserve(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i < kept_from && messages[i].role == Role::Developer) continue;
    if (i < kept_from) messages[i].reasoning.clear();
    kept.push_back(std::move(messages[i]));
  }
  messages = std::move(kept);
}

std::string_view effort_prefix(const ChatOptions& options) {
  const bool preview = options.variant == ChatVariant::V4Preview;
  const ReasoningEffort effort = options.reasoning_effort;
  if (preview && effort == ReasoningEffort::Low) {
    throw ChatError("invalid_reasoning_effort", std::nullopt,
                    "v4-preview knows the reasoning efforts none, high and max; low needs v4-0731");
  }
  if (options.thinking_mode == ThinkingMode::Chat) return "";
  if (effort == ReasoningEffort::Max) return preview ? kAbsoluteEffort : kBeyondEffort;
  if (effort == ReasoningEffort::High && !preview) return kAbsoluteEffort;
  return "";
}

class Renderer {
 public:
  Renderer(const std::vector<Message>& messages, bool thinking, bool drop)
      : messages_(messages), thinking_(thinking), drop_(drop), last_user_(last_user(messages)) {}

  EncodedChat render(std::string_view bos, std::string_view prefix) {
    out_.text.append(bos);
    if (!messages_.empty()) out_.text.append(prefix);
    for (size_t i = 0; i < messages_.size(); ++i) {
      write_body(i);
      write_transition(i);
    }
    out_.drops_reasoning = thinking_ && drop_;
    return std::move(out_);
  }

 private:
  void write_body(size_t i) {
    const Message& message = messages_[i];
    if (message.role == Role::Assistant) return write_assistant(i);
    if (is_user(message.role)) out_.text.append(kUserHeader);
    if (message.role == Role::LatestReminder) out_.text.append(kReminderHeader);
    out_.text.append(message.content);
  }

  void write_assistant(size_t i) {
    const Message& message = messages_[i];
    const bool after_last_user = static_cast<ptrdiff_t>(i) > last_user_;
    AssistantBody body{message.index, out_.text.size(), out_.text.size(), after_last_user, {}};
    if (thinking_ && (!drop_ || after_last_user)) {
      write_part(body, Component::Reasoning, message.reasoning);
      write_part(body, Component::ThinkClose, kThinkClose);
    }
    write_part(body, Component::Content, message.content);
    if (message.write_eos) write_part(body, Component::Eos, kEos);
    body.end = out_.text.size();
    out_.bodies.push_back(std::move(body));
  }

  void write_part(AssistantBody& body, Component component, std::string_view text) {
    if (text.empty()) return;
    const size_t begin = out_.text.size();
    out_.text.append(text);
    body.parts.push_back({component, begin, out_.text.size()});
  }

  /// The header of the answer belongs to the user message in front of it.
  void write_transition(size_t i) {
    if (!is_user(messages_[i].role)) return;
    if (i + 1 < messages_.size()) {
      const Role next = messages_[i + 1].role;
      if (next != Role::Assistant && next != Role::LatestReminder) return;
    }
    const bool open = thinking_ && (!drop_ || static_cast<ptrdiff_t>(i) >= last_user_);
    out_.text.append(kAssistantHeader).append(open ? kThinkOpen : kThinkClose);
  }

  const std::vector<Message>& messages_;
  bool thinking_, drop_;
  ptrdiff_t last_user_;
  EncodedChat out_;
};

std::string located(std::optional<size_t> index, const std::string& explanation) {
  return index ? "message " + std::to_string(*index) + ": " + explanation : explanation;
}

bool has_role(const Json& message, std::string_view role) {
  if (!message.is_object()) return false;
  const Json& value = value_or_null(message, "role");
  return value.is_string() && value.get_ref<const std::string&>() == role;
}

}  // namespace

ChatError::ChatError(std::string category, std::optional<size_t> message_index, const std::string& explanation)
    : InputError("[" + category + "] " + located(message_index, explanation)),
      category_(std::move(category)),
      message_index_(message_index),
      explanation_(located(message_index, explanation)) {}

ChatVariant chat_variant(std::string_view name) {
  if (name == "v4-preview") return ChatVariant::V4Preview;
  if (name == "v4-0731") return ChatVariant::V4_0731;
  if (name == "v4.1") unsupported("the variant v4.1");
  throw ChatError("invalid_variant", std::nullopt,
                  "the variant is \"" + std::string(name) + "\"; known are v4-preview and v4-0731");
}

ThinkingMode thinking_mode(std::string_view name) {
  if (name == "chat") return ThinkingMode::Chat;
  if (name == "thinking") return ThinkingMode::Thinking;
  throw ChatError("invalid_thinking_mode", std::nullopt,
                  "thinking_mode is \"" + std::string(name) + "\"; known are chat and thinking");
}

ReasoningEffort reasoning_effort(std::string_view name) {
  if (name == "none") return ReasoningEffort::None;
  if (name == "low" || name.empty()) return ReasoningEffort::Low;
  if (name == "high") return ReasoningEffort::High;
  if (name == "max") return ReasoningEffort::Max;
  throw ChatError("invalid_reasoning_effort", std::nullopt,
                  "reasoning_effort is \"" + std::string(name) + "\"; known are none, low, high and max");
}

EncodedChat encode_chat(const Json& messages, const ChatOptions& options) {
  const std::string_view prefix = effort_prefix(options);
  const bool thinking = options.thinking_mode == ThinkingMode::Thinking;
  std::vector<Message> kept = read_messages(messages);
  if (thinking && options.drop_thinking) drop_history_reasoning(kept);
  return Renderer(kept, thinking, options.drop_thinking).render(options.add_default_bos_token ? kBos : "", prefix);
}

bool has_reasoning(const Json& messages) {
  if (!messages.is_array()) return false;
  return std::any_of(messages.begin(), messages.end(), [](const Json& message) {
    return has_role(message, "assistant") &&
           (is_truthy(value_or_null(message, "reasoning_content")) || is_truthy(value_or_null(message, "reasoning")));
  });
}

std::vector<size_t> answered_turn_ends(const Json& messages) {
  std::vector<size_t> ends;
  bool in_turn = false;
  size_t end = 0;  // of the answers of the current turn; 0 = none yet
  for (size_t i = 0; messages.is_array() && i < messages.size(); ++i) {
    if (has_role(messages[i], "user") || has_role(messages[i], "developer")) {
      if (end > 0) ends.push_back(end);
      end = 0;
      in_turn = true;
    } else if (in_turn && has_role(messages[i], "assistant")) {
      end = i + 1;
    }
  }
  if (end > 0) ends.push_back(end);
  return ends;
}

bool is_truthy(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0.0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

}  // namespace asterism::data
