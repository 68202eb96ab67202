#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "asterism/data/loss_mask.h"

namespace asterism::cli {

/// How rows are encoded that do not say so themselves.
struct ChatDefaults {
  data::ChatOptions chat;
  data::LossOptions loss;
};

/// {"text", "ids", "weights"} of a chat row {"messages": [...]}: the encoded conversation, its tokens and the weight of
/// each as a target, unshifted. The row's own thinking_mode (absent: thinking when it has reasoning), drop_thinking,
/// reasoning_effort, add_bos and history win over `defaults`. With history "split" the object is {"samples": [...]},
/// one of the above for every answered user turn. ChatError when the row is not of this form or the encoding does not
/// allow it.
nlohmann::ordered_json encode_chat_row(const nlohmann::ordered_json& row, const ChatDefaults& defaults,
                                       const data::TokenizeFunction& tokenize);

/// {"error": {"category", "message", "message_index"}}, the last one null when no message is to blame.
nlohmann::ordered_json error_row(const data::ChatError& error);

/// The object of a line of JSON Lines. ChatError (invalid_utf8, too_deep, invalid_json, not_an_object) when it is none.
nlohmann::ordered_json parse_row(const std::string& line);

}  // namespace asterism::cli
