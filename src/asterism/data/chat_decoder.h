#pragma once

#include "asterism/data/completion_grammar.h"

namespace asterism::data {

/// The assistant message that a completion stands for: the text that the model wrote behind the prompt, with its
/// special tokens. Strict mode: as the official parser reads it, ChatError where it fails (strict_grammar.h;
/// invalid_utf8). Recover mode: always a message (recover_grammar.h). The same as StreamDecoder over the whole text.
DecodedChat decode_chat(std::string_view completion, const DecodeOptions& options);
}  // namespace asterism::data
