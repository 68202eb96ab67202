#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/byte_range.h"
#include "tests/support/temporary_folder.h"

namespace asterism::test {

using testing::TemporaryFolder;

/// Every byte is a token with its value as id: the tokenizer of tests that need none.
void tokenize_bytes(std::string_view text, std::span<const data::ByteRange> as_text, std::vector<int64_t>& ids,
                    std::vector<size_t>& ends);

}  // namespace asterism::test
