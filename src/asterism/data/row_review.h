#pragma once

#include <string>
#include <vector>

#include "asterism/data/chat_row.h"

namespace asterism::data {

/// Something in a row that may be trained on but is probably a mistake.
struct RowWarning {
  const char* code;         // a stable name
  std::string explanation;  // of this row
};

/// What is suspicious about a conversation, every code at most once. The conversation must be one that can be encoded.
///   reasoning_dropped         it has reasoning that is not written: chat mode, or drop_thinking without history split
///   undeclared_tool           a call of a tool that is not among the tools
///   arguments_not_json        arguments that are no JSON object
///   arguments_mismatch        arguments that do not fit the declared schema (tool_schema.h)
///   result_without_call       more tool results behind an answer than it has calls
///   think_tags_in_content     <think> or </think> in an answer: reasoning belongs into reasoning_content
///   special_token_in_content  other text that looks like a special token
///   empty_answer              an answer without content, reasoning and calls
std::vector<RowWarning> review_conversation(const ChatRow& row);

}  // namespace asterism::data
