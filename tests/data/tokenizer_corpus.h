#pragma once

#include <string>
#include <vector>

#include "asterism/data/tokenizer.h"

namespace asterism::data {

/// 2 MB of text in 512 parts of about 4 KB, the same on every machine: words of the vocabulary in random order (all
/// languages and code), every kind of character, long runs, line breaks, and texts that look like special tokens.
/// tests/data/tokenizer_corpus.txt has the ids that the package `tokenizers` gives them
/// (tools/compare-tokenizer --write-hashes).
std::vector<std::string> tokenizer_corpus(const Tokenizer& tokenizer);

}  // namespace asterism::data
