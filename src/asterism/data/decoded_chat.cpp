#include "asterism/data/decoded_chat.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace asterism::data {

using Json = nlohmann::ordered_json;

std::string_view issue_name(DecodeIssue issue) {
  switch (issue) {
    case DecodeIssue::InvalidJsonValue:
      return "invalid_json_value";
    case DecodeIssue::IncompleteToolCalls:
      return "incomplete_tool_calls";
    case DecodeIssue::MissingEos:
      return "missing_eos";
    case DecodeIssue::MissingThinkEnd:
      return "missing_think_end";
    case DecodeIssue::LeadingThinkStart:
      return "leading_think_start";
    case DecodeIssue::ExtraThinkEnd:
      return "extra_think_end";
    case DecodeIssue::ToolBlockInReasoning:
      return "tool_block_in_reasoning";
    case DecodeIssue::BlockSeparator:
      return "block_separator";
    case DecodeIssue::MissingWrapper:
      return "missing_wrapper";
    case DecodeIssue::Layout:
      return "layout";
    case DecodeIssue::ParameterAttribute:
      return "parameter_attribute";
    case DecodeIssue::DuplicateParameter:
      return "duplicate_parameter";
    case DecodeIssue::TextInToolCalls:
      return "text_in_tool_calls";
    case DecodeIssue::TextAfterToolCalls:
      return "text_after_tool_calls";
    case DecodeIssue::TextAfterEos:
      return "text_after_eos";
    case DecodeIssue::UnterminatedToolCalls:
      return "unterminated_tool_calls";
    case DecodeIssue::MalformedToolCall:
      return "malformed_tool_call";
    case DecodeIssue::UnexpectedSpecialToken:
      return "unexpected_special_token";
    case DecodeIssue::OtherDialect:
      return "other_dialect";
    case DecodeIssue::InvalidUtf8:
      return "invalid_utf8";
  }
  return "";
}

bool DecodedChat::has(DecodeIssue issue) const {
  return std::count(issues.begin(), issues.end(), issue) > 0;
}

void DecodedChat::note(DecodeIssue issue) {
  if (!has(issue)) issues.push_back(issue);
}

Json message_json(const DecodedChat& chat) {
  Json calls = Json::array();
  for (const DecodedCall& call : chat.tool_calls) {
    calls.push_back({{"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return {{"role", "assistant"},
          {"content", chat.content},
          {"reasoning_content", chat.reasoning_content},
          {"tool_calls", std::move(calls)}};
}

Json decoded_json(const DecodedChat& chat) {
  Json issues = Json::array();
  for (const DecodeIssue issue : chat.issues) issues.push_back(issue_name(issue));
  Json decoded = {{"message", message_json(chat)}, {"finished", chat.finished}, {"issues", std::move(issues)}};
  if (chat.incomplete_call) {
    decoded["incomplete_tool_call"] = {{"name", chat.incomplete_call->name},
                                       {"partial_parameter", chat.incomplete_call->partial_parameter},
                                       {"partial_value", chat.incomplete_call->partial_value}};
  }
  return decoded;
}

}  // namespace asterism::data
