#include "asterism/data/chat_conversion.h"

#include <optional>
#include <string>
#include <utility>

#include "asterism/data/chat_error.h"
#include "asterism/data/excerpt.h"
#include "asterism/data/python_json.h"

namespace asterism::data {
namespace {

constexpr const char* kInvalidConversations = "invalid_conversations";
constexpr const char* kInvalidAlpaca = "invalid_alpaca";
constexpr size_t kShownName = 40;

[[noreturn]] void fail(const char* category, std::optional<size_t> index, const std::string& explanation) {
  throw ChatError(category, index, explanation);
}

/// The value of a key, which the row then has no more.
JsonValue take(JsonValue& row, std::string_view key) {
  for (auto& [name, value] : row.as_object()) {
    if (name == key) return std::exchange(value, JsonValue());
  }
  return {};
}

/// Replaces JSON text by what it says.
void read_json_text(JsonValue& row, const std::string& key, const char* category) {
  const JsonValue& value = row.get(key);
  if (!value.is_string()) return;
  JsonValue parsed;
  if (const auto fault = parse_json(value.as_string(), parsed, EqualKeys::AreFault)) {
    fail(category, std::nullopt,
         text(key, " is text but no JSON list: ", fault->reason, " at its byte ", fault->offset));
  }
  row.set(key, std::move(parsed));
}

const JsonValue::Array& list_of(const JsonValue& row, const char* key, const char* category) {
  const JsonValue& value = row.get(key);
  if (!value.is_array()) fail(category, std::nullopt, text(key, " must be a list, found ", value.type_name()));
  return value.as_array();
}

JsonValue message_of(const char* role, std::string content) {
  return JsonValue::object({{"role", role}, {"content", std::move(content)}});
}

void refuse_media(const JsonValue& row) {
  for (const char* key : {"images", "image", "videos", "video", "audios", "audio"}) {
    if (!is_truthy(row.get(key))) continue;
    fail("unsupported_feature", std::nullopt,
         text("the row has ", key,
              ", but only text can be trained on; remove the row, or the key to train on the "
              "placeholders in its text"));
  }
}

/// {"name", ...} as {"type": "function", "function": {"name", ...}}.
void wrap_tools(JsonValue& row) {
  JsonValue tools = take(row, "tools");
  if (tools.is_array()) {
    for (JsonValue& tool : tools.as_array()) {
      if (tool.find("function") != nullptr || tool.find("name") == nullptr) continue;
      tool = JsonValue::object({{"type", "function"}, {"function", std::move(tool)}});
    }
  }
  if (!tools.is_null()) row.set("tools", std::move(tools));
}

/// The system message that stands beside the conversation.
void add_row_system(JsonValue& row, JsonValue::Array& messages, const char* category) {
  const JsonValue system = take(row, "system");
  if (!is_truthy(system)) return;
  if (!system.is_string()) fail(category, std::nullopt, text("system must be text, found ", system.type_name()));
  messages.push_back(message_of("system", system.as_string()));
}

// ---- ShareGPT

struct TurnRole {
  std::string_view from;
  const char* role;
};
constexpr TurnRole kTurnRoles[] = {
    {"system", "system"}, {"human", "user"},          {"user", "user"},
    {"gpt", "assistant"}, {"assistant", "assistant"}, {"function_call", "assistant"},
    {"tool", "tool"},     {"observation", "tool"},
};

const char* role_of_turn(const JsonValue& from, size_t index) {
  for (const TurnRole& known : kTurnRoles) {
    if (from.is_string() && from.as_string() == known.from) return known.role;
  }
  fail(kInvalidConversations, index,
       text("from must be human, gpt, system, function_call, observation or tool, found ",
            from.is_string() ? readable_prefix(from.as_string(), kShownName) : from.type_name()));
}

bool is_message(const JsonValue& message, std::string_view role) {
  const JsonValue& value = message.get("role");
  return value.is_string() && value.as_string() == role;
}

/// The calls that a function_call turn writes down.
JsonValue::Array calls_of(const std::string& value, size_t index) {
  JsonValue parsed;
  const auto fault = parse_json(value, parsed);
  if (fault || !(parsed.is_object() || parsed.is_array())) {
    fail(kInvalidConversations, index,
         R"(the value of a function_call must be JSON: {"name": ..., "arguments": ...} or a list of these)");
  }
  JsonValue::Array calls = parsed.is_array() ? std::move(parsed.as_array()) : JsonValue::Array{std::move(parsed)};
  for (JsonValue& call : calls) {
    if (call.find("function") == nullptr) call = JsonValue::object({{"function", std::move(call)}});
    if (!call.get("function").get("name").is_string()) {
      fail(kInvalidConversations, index, "a call in the value of a function_call has no name");
    }
  }
  return calls;
}

void add_calls(JsonValue::Array& messages, JsonValue::Array calls) {
  if (messages.empty() || !is_message(messages.back(), "assistant")) messages.push_back(message_of("assistant", ""));
  JsonValue& answer = messages.back();
  JsonValue earlier = take(answer, "tool_calls");
  if (earlier.is_array()) {
    for (JsonValue& call : calls) earlier.as_array().push_back(std::move(call));
    calls = std::move(earlier.as_array());
  }
  answer.set("tool_calls", std::move(calls));
}

void add_turn(JsonValue::Array& messages, const JsonValue& turn, size_t index) {
  if (!turn.is_object()) {
    fail(kInvalidConversations, index, text("a turn must be an object, found ", turn.type_name()));
  }
  if (turn.find("from") == nullptr && turn.find("role") != nullptr) {
    fail(kInvalidConversations, index, "the turn has role in place of from; rename the key conversations to messages");
  }
  const JsonValue& from = turn.get("from");
  const char* role = role_of_turn(from, index);
  const JsonValue& value = turn.get("value");
  if (!value.is_string()) {
    fail(kInvalidConversations, index, text("value must be text, found ", value.type_name()));
  }
  if (from.as_string() == "function_call") return add_calls(messages, calls_of(value.as_string(), index));
  JsonValue message = message_of(role, value.as_string());
  for (const auto& [key, other] : turn.as_object()) {
    if (key != "from" && key != "value") message.set(key, other);
  }
  messages.push_back(std::move(message));
}

JsonValue::Array messages_of_sharegpt(JsonValue& row) {
  read_json_text(row, "conversations", kInvalidConversations);
  JsonValue::Array messages;
  add_row_system(row, messages, kInvalidConversations);
  const bool has_system = !messages.empty();
  const JsonValue::Array& turns = list_of(row, "conversations", kInvalidConversations);
  for (size_t i = 0; i < turns.size(); ++i) {
    add_turn(messages, turns[i], i);
    if (has_system && is_message(messages.back(), "system")) {
      fail(kInvalidConversations, i, "the row has a system message twice: as system and as a turn");
    }
  }
  take(row, "conversations");
  return messages;
}

// ---- Alpaca

std::string alpaca_text(const JsonValue& row, const char* key, bool required) {
  const JsonValue& value = row.get(key);
  if (value.is_null() && !required) return {};
  if (!value.is_string()) {
    fail(kInvalidAlpaca, std::nullopt,
         value.is_null() ? text("the row has no ", key) : text(key, " must be text, found ", value.type_name()));
  }
  return value.as_string();
}

void add_history(JsonValue& row, JsonValue::Array& messages) {
  const JsonValue& history = row.get("history");
  // As text that is no list it is the option of chat rows that says which answers are trained.
  if (history.is_null() || (history.is_string() && !history.as_string().starts_with("["))) return;
  read_json_text(row, "history", kInvalidAlpaca);
  for (const JsonValue& pair : list_of(row, "history", kInvalidAlpaca)) {
    if (!pair.is_array() || pair.size() != 2 || !pair.as_array()[0].is_string() || !pair.as_array()[1].is_string()) {
      fail(kInvalidAlpaca, std::nullopt, "history must be a list of [question, answer]");
    }
    messages.push_back(message_of("user", pair.as_array()[0].as_string()));
    messages.push_back(message_of("assistant", pair.as_array()[1].as_string()));
  }
  take(row, "history");
}

JsonValue::Array messages_of_alpaca(JsonValue& row) {
  JsonValue::Array messages;
  add_row_system(row, messages, kInvalidAlpaca);
  add_history(row, messages);
  std::string question = alpaca_text(row, "instruction", true);
  const std::string input = alpaca_text(row, "input", false);
  if (!input.empty()) question += "\n" + input;
  messages.push_back(message_of("user", std::move(question)));
  messages.push_back(message_of("assistant", alpaca_text(row, "output", true)));
  return messages;
}

}  // namespace

JsonValue to_chat_row(RowKind kind, JsonValue row) {
  refuse_media(row);
  read_json_text(row, "messages", "invalid_messages");
  read_json_text(row, "tools", "invalid_tools");
  if (kind == RowKind::Chat) {
    if (is_truthy(row.get("system"))) {
      fail("invalid_messages", std::nullopt, "system stands beside messages; make it the first message");
    }
    return row;
  }
  JsonValue::Array messages = kind == RowKind::ShareGpt ? messages_of_sharegpt(row) : messages_of_alpaca(row);
  row.set("messages", std::move(messages));
  wrap_tools(row);
  return row;
}

}  // namespace asterism::data
