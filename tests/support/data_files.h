#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace asterism::test {

using testing::TemporaryFolder;

/// Every byte is a token with its value as id: the tokenizer of tests that need none.
void tokenize_bytes(std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends);

/// tests/golden/encoding/<name>.
nlohmann::ordered_json encoding_golden(const std::string& name);

}  // namespace asterism::test
