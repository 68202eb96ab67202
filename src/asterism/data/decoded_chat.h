#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace asterism::data {

/// What a decoder noticed about a completion that it could still read.
enum class DecodeIssue {
  // of both modes
  InvalidJsonValue,
  // of strict mode: what the official parser accepts although the text was cut or a tag became part of a value
  IncompleteToolCalls,
  // of recover mode
  MissingEos,
  MissingThinkEnd,
  LeadingThinkStart,
  ExtraThinkEnd,
  ToolBlockInReasoning,
  BlockSeparator,
  MissingWrapper,
  Layout,
  ParameterAttribute,
  DuplicateParameter,
  TextInToolCalls,
  TextAfterToolCalls,
  TextAfterEos,
  UnterminatedToolCalls,
  MalformedToolCall,
  UnexpectedSpecialToken,
  OtherDialect,
  InvalidUtf8,
};

/// The stable name for scripts: "missing_eos".
std::string_view issue_name(DecodeIssue issue);

struct DecodedCall {
  std::string name;
  std::string arguments;  // JSON text of an object; see InvalidJsonValue
};

/// The call that was being written when the text ended. It is no part of the message.
struct IncompleteCall {
  std::string name;
  std::string partial_parameter{};  // the parameter that is not closed; empty when there is none
  std::string partial_value{};
};

/// An assistant message read from a completion.
struct DecodedChat {
  std::string content;
  std::string reasoning_content;
  std::vector<DecodedCall> tool_calls;
  /// Nothing of the message is missing: the end token or the end of the tool calls was there. Calls of an unfinished
  /// message must not be executed.
  bool finished = false;
  std::vector<DecodeIssue> issues;  // each at most once, in order of the text as far as it has a place there
  std::optional<IncompleteCall> incomplete_call;

  void note(DecodeIssue issue);
  bool has(DecodeIssue issue) const;
};

/// {"role": "assistant", "content", "reasoning_content", "tool_calls": [{"type", "function": {"name", "arguments"}}]},
/// all of them present. Calls have no ids: those are the server's to make.
nlohmann::ordered_json message_json(const DecodedChat& chat);

/// {"message", "finished", "issues"}, and "incomplete_tool_call" {"name", "partial_parameter", "partial_value"} when
/// there is one.
nlohmann::ordered_json decoded_json(const DecodedChat& chat);

}  // namespace asterism::data
