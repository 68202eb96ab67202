#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/core/error.h"

namespace asterism::data {

/// A conversation or option that the chat encoding does not allow. `category` is a stable name for scripts
/// ("invalid_content", "unknown_role", "unsupported_feature", ...), `message_index` the position in the given messages.
class ChatError : public InputError {
 public:
  ChatError(std::string category, std::optional<size_t> message_index, const std::string& explanation);

  const std::string& category() const { return category_; }
  std::optional<size_t> message_index() const { return message_index_; }
  /// what() without the category.
  const std::string& explanation() const { return explanation_; }

 private:
  std::string category_;
  std::optional<size_t> message_index_;
  std::string explanation_;
};

/// Released encoder versions. They differ in the reasoning effort only: V4_0731 has three levels, V4Preview two.
enum class ChatVariant { V4Preview, V4_0731 };
enum class ThinkingMode { Chat, Thinking };
enum class ReasoningEffort { None, Low, High, Max };

/// Names as users write them: "v4-preview", "v4-0731"; "chat", "thinking"; "none", "low", "high", "max" ("" is low, as
/// in the official module). ChatError for any other name.
ChatVariant chat_variant(std::string_view name);
ThinkingMode thinking_mode(std::string_view name);
ReasoningEffort reasoning_effort(std::string_view name);

struct ChatOptions {
  ChatVariant variant = ChatVariant::V4_0731;
  ThinkingMode thinking_mode = ThinkingMode::Chat;
  bool drop_thinking = true;  // leave the reasoning of earlier turns out
  ReasoningEffort reasoning_effort = ReasoningEffort::None;
  bool add_default_bos_token = true;
};

/// What an assistant message consists of, in the order it is written.
enum class Component { Reasoning, ThinkClose, Content, Eos };
inline constexpr size_t kNumComponents = 4;

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
  bool in_last_turn;  // after the last user (or developer) message
  std::vector<BodyPart> parts;
};

struct EncodedChat {
  std::string text;
  std::vector<AssistantBody> bodies;  // in order of the text
  bool drops_reasoning = false;       // thinking mode whose earlier turns are written without their reasoning
};

/// The official DeepSeek-V4 encoding of a conversation, byte for byte. A conversation that ends with a user message
/// ends with an open assistant header.
///
/// messages: array of objects with `role` (system, developer, user, latest_reminder, assistant) and `content` (text, a
/// list of text parts joined by a blank line, or null for empty text). Assistant messages may have `reasoning_content`
/// or `reasoning` (the same text under two names) and `wo_eos: true` (no end token: the answer goes on). Consecutive
/// user messages are one turn. Nothing is trimmed or escaped. The input is not changed.
///
/// ChatError for anything else, among it "unsupported_feature": tools, tool calls and results, response_format, task,
/// images.
EncodedChat encode_chat(const nlohmann::ordered_json& messages, const ChatOptions& options);

/// Whether some assistant message carries reasoning text. False for malformed messages; encode_chat reports those.
bool has_reasoning(const nlohmann::ordered_json& messages);

/// For every user turn that is answered: how many leading messages reach from the start to the end of its answers.
/// A turn is a user or developer message with what follows up to the next one. Empty when no turn has an answer.
std::vector<size_t> answered_turn_ends(const nlohmann::ordered_json& messages);

/// Python's truth of a JSON value: null, false, 0, "", [] and {} count as absent.
bool is_truthy(const nlohmann::ordered_json& value);

}  // namespace asterism::data
