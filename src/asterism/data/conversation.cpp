#include "asterism/data/conversation.h"

#include <algorithm>
#include <map>
#include <utility>

#include "asterism/data/chat_markup.h"
#include "asterism/data/python_json.h"

namespace asterism::data {
namespace {

constexpr std::pair<std::string_view, Role> kRoles[] = {
    {"system", Role::System},
    {"developer", Role::Developer},
    {"user", Role::User},
    {"tool", Role::User},
    {"latest_reminder", Role::LatestReminder},
    {"assistant", Role::Assistant},
    {"direct_search_results", Role::SearchResults},
};

constexpr std::string_view kImageTypes[] = {"image", "image_url", "input_image"};

/// Where a message stands, for errors.
struct Place {
  std::optional<size_t> index;  // in the caller's messages
  size_t context_index = 0;     // in the context, when `index` has nothing

  [[noreturn]] void fail(const char* category, const std::string& explanation) const {
    if (index) throw ChatError(category, index, explanation);
    throw ChatError(category, std::nullopt, text("context message ", context_index, ": ", explanation));
  }
};

const JsonValue* truthy(const JsonValue& message, const char* key) {
  const JsonValue* value = message.find(key);
  return value != nullptr && is_truthy(*value) ? value : nullptr;
}

bool has_role(const JsonValue& message, std::string_view role) {
  const JsonValue& value = message.get("role");
  return value.is_string() && value.as_string() == role;
}

const std::string& part_type(const JsonValue& part, const Place& place) {
  static const std::string kNone = "None";  // as Python prints a missing one
  if (!part.is_object()) place.fail("invalid_content", "a content part must be an object with a type");
  const JsonValue& type = part.get("type");
  if (type.is_null()) return kNone;
  if (!type.is_string()) place.fail("invalid_content", "the type of a content part must be text");
  return type.as_string();
}

const std::string& text_of_part(const JsonValue& part, const Place& place) {
  const JsonValue& value = part.get("text");
  if (!value.is_string()) place.fail("invalid_content", "a content part of type text needs its text, as a string");
  return value.as_string();
}

/// A tool may return anything; what is no text shows by its type, as in the official module.
TextPart tool_part(const JsonValue& part, const Place& place) {
  const std::string& type = part_type(part, place);
  if (type != "text") return {"[Unsupported " + type + "]"};
  return {part.find("text") == nullptr ? "" : text_of_part(part, place)};
}

TextPart message_part(const JsonValue& part, Role role, const Place& place) {
  const std::string& type = part_type(part, place);
  if (type == "text") return {text_of_part(part, place)};
  const bool image = std::find(std::begin(kImageTypes), std::end(kImageTypes), type) != std::end(kImageTypes);
  if (image && role != Role::Assistant) return {std::string(kImagePlaceholder), false};
  place.fail("invalid_content", "a content part of type \"" + type + "\" cannot be encoded; only text can" +
                                    (role == Role::Assistant ? "" : ", and images as placeholders"));
}

std::vector<TextPart> content_of(const JsonValue& message, Role role, bool is_tool, const Place& place) {
  const JsonValue* content = message.find("content");
  if (content == nullptr) {
    // Messages that carry something else are usual for these; elsewhere it is a misspelt key.
    if (role == Role::Assistant || role == Role::System || role == Role::Developer || is_tool) return {};
    place.fail("invalid_content", "the message has no content");
  }
  // The official module formats a missing reminder as Python prints it.
  if (content->is_null())
    return role == Role::LatestReminder ? std::vector<TextPart>{{"None", false}} : std::vector<TextPart>{};
  if (content->is_string()) return {{content->as_string()}};
  const bool falsy_is_empty = role == Role::Assistant || role == Role::System || role == Role::Developer;
  if (falsy_is_empty && !is_truthy(*content)) return {};
  if (!content->is_array()) {
    place.fail("invalid_content", text("content must be text or a list of parts, found ", content->type_name()));
  }
  std::vector<TextPart> parts;
  for (const JsonValue& part : content->as_array()) {
    parts.push_back(is_tool ? tool_part(part, place) : message_part(part, role, place));
  }
  return parts;
}

std::string_view reasoning_of(const JsonValue& message, const Place& place) {
  std::string_view reasoning;
  for (const char* key : {"reasoning_content", "reasoning"}) {
    const JsonValue* value = truthy(message, key);
    if (value == nullptr) continue;
    if (!value->is_string()) {
      place.fail("invalid_reasoning", text(key, " must be text, found ", value->type_name()));
    }
    if (!reasoning.empty() && reasoning != value->as_string()) {
      place.fail("conflicting_reasoning", "reasoning_content and reasoning differ; keep one of them");
    }
    reasoning = value->as_string();
  }
  return reasoning;
}

bool writes_eos(const JsonValue& message, const Place& place) {
  const JsonValue& wo_eos = message.get("wo_eos");
  const bool is_truth = wo_eos.is_null() || wo_eos.is_boolean() || wo_eos.is_number();
  if (!is_truth) place.fail("invalid_wo_eos", "wo_eos must be true or false");
  return !is_truthy(wo_eos);
}

Role role_of(const JsonValue& message, const Place& place) {
  if (!message.is_object()) {
    place.fail("invalid_message", text("a message must be an object, found ", message.type_name()));
  }
  const JsonValue& role = message.get("role");
  if (!role.is_string()) place.fail("unknown_role", "a message needs a role, given as text");
  const auto found = std::find_if(std::begin(kRoles), std::end(kRoles),
                                  [&](const auto& known) { return known.first == role.as_string(); });
  return found == std::end(kRoles) ? Role::Unknown : found->second;
}

/// Builds the list of turns message by message (encoding-spec 4.1).
class Merger {
 public:
  Merger(std::vector<Turn>& turns, const ChatOptions& options) : turns_(turns), options_(options) {}

  void add(const JsonValue& message, const Place& place) {
    const Role role = role_of(message, place);
    if (role == Role::User) return add_user(message, place);
    Turn turn{.role = role, .index = place.index, .message = &message};
    if (role != Role::SearchResults && role != Role::Unknown) {
      turn.blocks.push_back({place.index, content_of(message, role, false, place)});
    }
    if (role == Role::Assistant) {
      turn.reasoning = reasoning_of(message, place);
      turn.write_eos = writes_eos(message, place);
      turn.tool_calls = truthy(message, "tool_calls");
    }
    read_extras(message, turn);
    turns_.push_back(std::move(turn));
  }

  /// The next message starts a turn of its own.
  void close() { start_ = turns_.size(); }

 private:
  void add_user(const JsonValue& message, const Place& place) {
    const bool is_tool = has_role(message, "tool");
    Block block{place.index, content_of(message, Role::User, is_tool, place), is_tool, {}};
    if (is_tool) block.call_id = message.get("tool_call_id");
    const bool open = turns_.size() > start_ && turns_.back().role == Role::User;
    if (open && (is_tool || turns_.back().task == nullptr)) {
      // Of the metadata of a message that joins a turn, v4.1 keeps the task; the older modules lose it.
      if (!is_tool && options_.variant == ChatVariant::V4_1) read_task(message, turns_.back());
      turns_.back().blocks.push_back(std::move(block));
      return;
    }
    Turn turn{.role = Role::User, .index = place.index, .message = &message};
    turn.blocks.push_back(std::move(block));
    if (!is_tool) {
      read_task(message, turn);
      if (options_.variant == ChatVariant::V4_1) read_tools(message, turn);
    }
    turns_.push_back(std::move(turn));
  }

  void read_extras(const JsonValue& message, Turn& turn) const {
    read_tools(message, turn);
    read_task(message, turn);
    turn.response_format = truthy(message, "response_format");
  }

  void read_tools(const JsonValue& message, Turn& turn) const {
    if (!options_.omit_tools) turn.tools = truthy(message, "tools");
  }

  static void read_task(const JsonValue& message, Turn& turn) {
    const JsonValue& task = message.get("task");
    if (!task.is_null()) turn.task = &task;
  }

  std::vector<Turn>& turns_;
  const ChatOptions& options_;
  size_t start_ = 0;  // turns before this one are closed
};

const JsonValue::Array& list_of(const JsonValue& value, const char* name) {
  static const JsonValue::Array kEmpty;
  if (value.is_null()) return kEmpty;
  if (!value.is_array()) {
    throw ChatError("invalid_messages", std::nullopt, text(name, " must be a list, found ", value.type_name()));
  }
  return value.as_array();
}

void attach(const JsonValue& value, const char* name, const JsonValue*& place) {
  if (!is_truthy(value)) return;
  if (place != nullptr && *place != value) {
    throw ChatError(text("conflicting_", name), std::nullopt,
                    text("the first message has other ", name, " than the row; keep one of them"));
  }
  place = &value;
}

/// What stands beside the messages belongs to the first one; it is made when it is no system or developer message.
/// Whether one was made.
bool attach_to_first(const Conversation& conversation, const ChatOptions& options, std::vector<Turn>& turns) {
  static const JsonValue kNone;
  const JsonValue& tools = options.omit_tools ? kNone : conversation.tools;
  if (!is_truthy(tools) && !is_truthy(conversation.response_format)) return false;
  const bool fits = !turns.empty() && (turns[0].role == Role::System || turns[0].role == Role::Developer);
  if (!fits) turns.insert(turns.begin(), Turn{.role = Role::System, .index = std::nullopt, .message = nullptr});
  attach(tools, "tools", turns[0].tools);
  attach(conversation.response_format, "response_format", turns[0].response_format);
  return !fits;
}

/// Python's `call.id or call.function.id`.
const JsonValue* call_id(const JsonValue& call) {
  if (const JsonValue* id = truthy(call, "id")) return id;
  return truthy(call.get("function"), "id");
}

/// Puts tool results into the order of the calls of the last assistant message that has some (encoding-spec 4.2).
class ResultSorter {
 public:
  void visit(Turn& turn) {
    if (turn.tool_calls != nullptr) learn(*turn.tool_calls);
    if (turn.role == Role::User && !positions_.empty()) sort(turn.blocks);
  }

 private:
  void learn(const JsonValue& calls) {
    positions_.clear();
    if (!calls.is_array()) return;  // reported where the calls are written
    for (size_t i = 0; i < calls.size(); ++i) {
      if (const JsonValue* id = call_id(calls.as_array()[i])) positions_[to_json(*id)] = i;
    }
  }

  size_t position(const Block& block) const {
    const auto found = positions_.find(to_json(block.call_id));
    return found == positions_.end() ? 0 : found->second;
  }

  void sort(std::vector<Block>& blocks) const {
    std::vector<Block> results;
    for (Block& block : blocks) {
      if (block.is_tool_result) results.push_back(std::move(block));
    }
    std::stable_sort(results.begin(), results.end(),
                     [&](const Block& a, const Block& b) { return position(a) < position(b); });
    auto next = results.begin();
    for (Block& block : blocks) {
      if (block.is_tool_result) block = std::move(*next++);
    }
  }

  std::map<std::string, size_t> positions_;
};

}  // namespace

Turns read_turns(const Conversation& conversation, const ChatOptions& options, size_t num_messages) {
  const auto& context = list_of(conversation.context, "context");
  if (!conversation.messages.is_array()) {
    throw ChatError("invalid_messages", std::nullopt,
                    text("messages must be a list, found ", conversation.messages.type_name()));
  }
  const auto& messages = conversation.messages.as_array();
  Turns turns;
  Merger merger(turns.all, options);
  for (size_t i = 0; i < context.size(); ++i) merger.add(context[i], {std::nullopt, i});
  turns.num_context = turns.all.size();
  merger.close();
  for (size_t i = 0; i < std::min(num_messages, messages.size()); ++i) merger.add(messages[i], {i, 0});
  const bool made = attach_to_first(conversation, options, turns.all);
  if (made && turns.num_context > 0) ++turns.num_context;
  ResultSorter sorter;
  for (Turn& turn : turns.all) sorter.visit(turn);
  return turns;
}

void turn_error(const Turn& turn, const char* category, const std::string& explanation) {
  throw ChatError(category, turn.index, explanation);
}

bool has_reasoning(const Conversation& conversation) {
  const auto some_in = [](const JsonValue& list) {
    return list.is_array() && std::any_of(list.as_array().begin(), list.as_array().end(), [](const JsonValue& message) {
             return has_role(message, "assistant") &&
                    (truthy(message, "reasoning_content") != nullptr || truthy(message, "reasoning") != nullptr);
           });
  };
  return some_in(conversation.messages) || some_in(conversation.context);
}

std::vector<size_t> answered_turn_ends(const Conversation& conversation, ChatVariant variant) {
  std::vector<size_t> ends;
  bool in_turn = false;
  size_t end = 0;    // of the answers of the current turn; 0 = none yet
  size_t index = 0;  // in context and messages
  const auto visit = [&](const JsonValue& message, size_t message_end) {
    const bool later_system = variant == ChatVariant::V4_1 && index > 0 && has_role(message, "system");
    ++index;
    if (has_role(message, "user") || has_role(message, "developer") || has_role(message, "tool") || later_system) {
      if (end > 0) ends.push_back(end);
      end = 0;
      in_turn = true;
    } else if (in_turn && has_role(message, "assistant")) {
      end = message_end;
    }
  };
  if (conversation.context.is_array()) {
    for (const JsonValue& message : conversation.context.as_array()) visit(message, 0);
  }
  if (conversation.messages.is_array()) {
    const auto& messages = conversation.messages.as_array();
    for (size_t i = 0; i < messages.size(); ++i) visit(messages[i], i + 1);
  }
  if (end > 0) ends.push_back(end);
  return ends;
}

}  // namespace asterism::data
