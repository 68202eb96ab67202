#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "asterism/data/byte_range.h"
#include "asterism/data/tokenizer.h"

namespace asterism::data {

/// Fills the ids of the tokens of a text and the byte offset at which each ends. The tokens tile the text. Inside the
/// ranges of `as_text` (as Tokenizer::encode_with_ranges takes them) no added token is seen.
using TokenizeFunction = std::function<void(std::string_view text, std::span<const ByteRange> as_text,
                                            std::vector<int64_t>& ids, std::vector<size_t>& ends)>;

/// The function of a tokenizer, which it keeps alive.
TokenizeFunction tokenize_with(std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace asterism::data
