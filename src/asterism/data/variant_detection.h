#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "asterism/data/chat_options.h"
#include "asterism/data/tokenizer.h"

namespace asterism::data {

struct VariantChoice {
  ChatVariant variant;
  std::string reason;  // for the log
};

/// Which encoding a checkpoint was made with. By what its folder says, in this order:
///   encoding/encoding_dsv4.py or encoding/encoding.py   the official encoder itself, known by its hash; one that is
///                                                       not known counts by its name
///   the tokenizer has <｜System｜> as id 128799          v4.1
///   chat_template.jinja with <｜System｜>                v4.1, the only one that ships a template
/// and v4-0731 without any of them: the weights of the preview cannot be told from the later ones. `place` is a
/// folder or a file in it. `tokenizer` may be nullptr.
VariantChoice detect_variant(const std::filesystem::path& place, const Tokenizer* tokenizer);

/// The version of an official encoder file, by its SHA-256; nothing for any other file.
std::optional<ChatVariant> variant_of_digest(std::string_view sha256);

}  // namespace asterism::data
