#pragma once

#include "asterism/data/conversation.h"
#include "asterism/data/loss_mask.h"

namespace asterism::data {

/// Auto: the row's own thinking_mode, else thinking when an assistant message has reasoning, else chat.
enum class Thinking { Auto, Chat, Thinking };

/// How rows are encoded that do not say so themselves.
struct ChatDefaults {
  ChatOptions chat;  // thinking_mode is set per row from `thinking`
  LossOptions loss;
  Thinking thinking = Thinking::Auto;
};

/// A conversation and how it is encoded.
struct ChatRow {
  Conversation conversation;
  ChatOptions chat;
  LossOptions loss;
};

/// The one place that reads a chat row {"messages": [...]}. Its own keys (null = absent) win over `defaults`:
/// thinking_mode (unless defaults.thinking fixes it), reasoning_effort, drop_thinking, add_bos (or the official name
/// add_default_bos_token), history, component_weights {"reasoning": 0.5, ...}, special_in_content, continue_reasoning,
/// reject_unframeable, tool_choice ("none" hides all tools). tools, response_format and context become part of the
/// conversation. `row` must be an object. ChatError when a key holds something else; messages are checked by
/// encode_chat.
ChatRow read_chat_row(JsonValue row, const ChatDefaults& defaults);

/// What may be encoded but should not be trained. ChatError (consecutive_assistants) for an answer behind an answer,
/// which the model would begin without any header, unless a task stands between them; (unknown_role) for a message that
/// the encoding may drop unread.
void check_trainable(const Conversation& conversation);

}  // namespace asterism::data
