#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "asterism/data/chat_options.h"
#include "asterism/data/decoded_chat.h"

namespace asterism::data {

enum class DecodeMode {
  Strict,   // what the official parser accepts, and an error for anything else
  Recover,  // a message whatever the text is, with a list of what was wrong
};

struct DecodeOptions {
  ChatVariant variant = ChatVariant::V4_0731;       // v4.1 spells tool calls in another way than the others
  ThinkingMode thinking_mode = ThinkingMode::Chat;  // the prompt ended with <think> (Thinking) or </think> (Chat)
  DecodeMode mode = DecodeMode::Strict;
  /// Recover mode: a call without the block around it counts only when the request declared tools.
  bool tools_declared = true;
};

/// A part of the message that will not change any more. All deltas of one kind, joined, are that part of the message.
struct ChatDelta {
  enum class Kind { Reasoning, Content, ToolCall };
  Kind kind;
  std::string text{};  // of Reasoning and Content
  DecodedCall call{};  // of ToolCall
};
using DeltaFunction = std::function<void(const ChatDelta&)>;

/// A completion as a sequence of markers and of the text between them. The caller finds the markers; a grammar says
/// which ones count at the moment and what they mean.
class CompletionGrammar {
 public:
  explicit CompletionGrammar(DeltaFunction on_delta) : on_delta_(std::move(on_delta)) {}
  virtual ~CompletionGrammar() = default;
  CompletionGrammar(const CompletionGrammar&) = delete;  // markers refer to members
  CompletionGrammar& operator=(const CompletionGrammar&) = delete;

  /// What ends the text that is being read (marker_search.h). Changes with every call below.
  virtual std::span<const std::string_view> markers() const = 0;
  /// Text in front of the next marker, in pieces of whole characters.
  virtual void text(std::string_view piece) = 0;
  /// Marker number `index` of markers().
  virtual void marker(size_t index) = 0;
  /// The end of the completion. `tail` could have become a marker.
  virtual DecodedChat end(std::string_view tail) = 0;

 protected:
  void add_reasoning(DecodedChat& chat, std::string_view piece) {
    chat.reasoning_content += piece;
    if (on_delta_) on_delta_({ChatDelta::Kind::Reasoning, std::string(piece)});
  }
  void add_content(DecodedChat& chat, std::string_view piece) {
    chat.content += piece;
    if (on_delta_) on_delta_({ChatDelta::Kind::Content, std::string(piece)});
  }
  /// Text goes where the state says; `segment` is what is neither reasoning nor content.
  template <typename State>
  void add_text(DecodedChat& chat, State state, std::string& segment, std::string_view piece) {
    if (state == State::Reasoning) {
      add_reasoning(chat, piece);
    } else if (state == State::Content) {
      add_content(chat, piece);
    } else {
      segment += piece;
    }
  }
  void add_call(DecodedChat& chat, DecodedCall call) {
    if (on_delta_) on_delta_({ChatDelta::Kind::ToolCall, {}, call});
    chat.tool_calls.push_back(std::move(call));
  }

 private:
  DeltaFunction on_delta_;
};

}  // namespace asterism::data
