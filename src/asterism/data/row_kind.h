#pragma once

#include <string_view>

#include "asterism/data/json_value.h"

namespace asterism::data {

/// What a row is, told by the one key that it must have:
///   messages       Chat      a conversation (chat_row.h)
///   input_ids      Tokens    token ids, perhaps with labels
///   text           Text      a plain document
///   conversations  ShareGpt  a conversation as turns {"from", "value"}   (chat_conversion.h)
///   instruction    Alpaca    a question and its answer                   (chat_conversion.h)
enum class RowKind { Chat, Tokens, Text, ShareGpt, Alpaca };

/// The kind of a row; null counts as absent. ChatError when its keys are those of no kind (unknown_kind) or of several
/// (ambiguous_kind). `row` must be an object.
RowKind kind_of_row(const JsonValue& row);

/// "chat", "token", "plain-text", "ShareGPT", "Alpaca".
std::string_view kind_name(RowKind kind);
/// The key that tells it.
std::string_view kind_key(RowKind kind);
/// Whether it becomes a conversation.
bool is_conversation(RowKind kind);

}  // namespace asterism::data
