#pragma once

#include <nlohmann/json.hpp>

#include "asterism/data/chat_row.h"

namespace asterism::cli {

/// {"text", "ids", "weights"} of a chat row {"messages": [...]} (data/chat_row.h): the encoded conversation, its tokens
/// and the weight of each as a target, unshifted. With history "split" the object is {"samples": [...]}, one of the
/// above for every answered user turn. ChatError when the row is not of this form or the encoding does not allow it.
nlohmann::ordered_json encode_chat_row(data::JsonValue row, const data::ChatDefaults& defaults,
                                       const data::TokenizeFunction& tokenize);

/// {"error": {"category", "message", "message_index"}}, the last one null when no message is to blame.
nlohmann::ordered_json error_row(const data::ChatError& error);

}  // namespace asterism::cli
