#pragma once

#include "asterism/data/json_value.h"
#include "asterism/data/row_kind.h"

namespace asterism::data {

/// A row of one of the conversation kinds as a chat row {"messages": [...], "tools": [...]?, ...}. All other keys are
/// kept, so the options of chat rows (chat_row.h) work in every kind.
///
/// Chat      as it is. system beside messages is an error: it would be lost.
/// ShareGpt  conversations: a list of {"from", "value"}; other keys of a turn ("loss") become keys of its message.
///             system                  a system message
///             human, user             a user message
///             gpt, assistant          an answer
///             function_call           calls of an answer: {"name", "arguments"} or a list of these, as JSON text;
///                                     directly behind an answer they belong to it
///             observation, tool       the result of a call
///           system: a system message in front (then no turn may be one).
/// Alpaca    instruction, behind a newline input (when not empty), output: a question and its answer. system: a system
///           message. history: a list of [question, answer], in front; a name is the option of chat rows.
///
/// In each, messages, conversations, history and tools may be JSON text instead, as Parquet files often hold them. In
/// ShareGpt and Alpaca rows a tool may be the bare {"name", "parameters", ...}.
/// ChatError: invalid_messages, invalid_conversations, invalid_alpaca, invalid_tools; unsupported_feature for rows with
/// pictures, sounds or videos (images, audios, videos, ...): only placeholders in the text can be trained on.
JsonValue to_chat_row(RowKind kind, JsonValue row);

}  // namespace asterism::data
