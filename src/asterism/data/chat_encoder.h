#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "asterism/data/byte_range.h"
#include "asterism/data/chat_options.h"
#include "asterism/data/conversation.h"

namespace asterism::data {

/// What an assistant message consists of, in the order it is written. ToolCalls begin with their leading blank line.
enum class Component { Reasoning, ThinkClose, Content, ToolCalls, Eos };
inline constexpr size_t kNumComponents = 5;

/// Bytes [begin, end) of the encoded text.
struct BodyPart {
  Component component;
  size_t begin, end;
};

/// What the model itself has to write for one assistant message: the bytes [begin, end) of the encoded text, tiled by
/// `parts` (parts without text are left out).
struct AssistantBody {
  size_t message_index;  // in the messages given by the caller
  size_t begin, end;
  bool in_last_turn;  // after the last user (or developer) message or tool result
  std::vector<BodyPart> parts;
};

/// Text that stands in the conversation as it does in the encoded text.
struct ContentRange {
  ByteRange range;                      // not empty
  std::optional<size_t> message_index;  // nothing for what stands beside the messages
};

struct EncodedChat {
  std::string text;
  std::vector<AssistantBody> bodies;   // in order of the text
  std::vector<ContentRange> contents;  // likewise; everything else was written by the encoder
  bool drops_reasoning = false;        // thinking mode whose earlier turns are written without their reasoning
};

/// The official DeepSeek-V4 encoding of a conversation, byte for byte, where the official module has one; where it
/// crashes or is known to be wrong, what encoding-spec.md proposes. A conversation that ends with a user message or a
/// tool result ends with an open assistant header.
///
/// messages: array of objects with `role` (system, developer, user, latest_reminder, assistant, tool) and `content`
/// (text, a list of text parts joined by a blank line, or null for empty text; pictures become a placeholder).
/// system and developer: `tools`, `response_format`. assistant: `reasoning_content` or `reasoning` (the same text under
/// two names), `tool_calls` whose arguments are JSON text or an object, `wo_eos: true` (no end token: the answer goes
/// on). tool: `tool_call_id`. Any: `task`. Consecutive user messages and tool results are one turn. Nothing is trimmed
/// or escaped. The input is not changed.
///
/// Encodes the first `num_messages` messages only. ChatError for anything else.
EncodedChat encode_chat(const Conversation& conversation, const ChatOptions& options,
                        size_t num_messages = static_cast<size_t>(-1));

}  // namespace asterism::data
