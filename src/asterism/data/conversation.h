#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/chat_options.h"
#include "asterism/data/json_value.h"

namespace asterism::data {

/// What is encoded (encoding-spec section 2). Lists may be null for none.
struct Conversation {
  JsonValue messages;
  JsonValue context;          // messages that an earlier call has encoded: known, but not written again
  JsonValue tools;            // those of the first message, which is made when it is no system or developer message
  JsonValue response_format;  // likewise
};

/// Whether some assistant message carries reasoning text. False for malformed messages; encode_chat reports those.
bool has_reasoning(const Conversation& conversation);

/// For every user turn that is answered: how many leading messages reach from the start to the end of its answers.
/// A turn is what stands between two answers and has a user, developer or tool message, or a system message that v4.1
/// takes for one. Empty when no turn has an answer.
std::vector<size_t> answered_turn_ends(const Conversation& conversation, ChatVariant variant);

enum class Role { System, Developer, User, LatestReminder, Assistant, SearchResults, Unknown };

/// Text of a message, or text that the encoder writes in its place (a placeholder).
struct TextPart {
  std::string text;
  bool from_row = true;
};

/// What one message contributes to a turn.
struct Block {
  std::optional<size_t> index;  // of the message in the caller's messages
  std::vector<TextPart> parts;  // joined by blank lines
  bool is_tool_result = false;
  JsonValue call_id{};
};

/// A message as the encoding sees it: consecutive user messages and tool results are one turn. Borrows from the
/// conversation.
struct Turn {
  Role role;
  std::optional<size_t> index;   // of its (first) message; nothing for messages of the context and for a made one
  const JsonValue* message;      // nullptr for a made one
  std::vector<Block> blocks{};   // one, except of users
  std::string_view reasoning{};  // of assistants
  bool write_eos = true;
  const JsonValue *tools = nullptr, *response_format = nullptr, *tool_calls = nullptr;  // nullptr when not truthy
  const JsonValue* task = nullptr;                                                      // nullptr when null

  bool is_user() const { return role == Role::User || role == Role::Developer; }
};

/// The turns of a conversation, those of the context first: merged, with its tools and response format in place and
/// tool results in the order of their calls (encoding-spec section 4).
struct Turns {
  std::vector<Turn> all;
  size_t num_context = 0;
};

/// ChatError for malformed messages, with one exception: what the official module may drop unread (the content of
/// developers, messages of unknown roles) is checked when it is written.
/// Reads the first `num_messages` messages only.
Turns read_turns(const Conversation& conversation, const ChatOptions& options, size_t num_messages);

/// ChatError about the message of a turn. One of the context has no index; it is named in the text.
[[noreturn]] void turn_error(const Turn& turn, const char* category, const std::string& explanation);

}  // namespace asterism::data
