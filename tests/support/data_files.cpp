#include "tests/support/data_files.h"

namespace asterism::test {

void tokenize_bytes(std::string_view text, std::span<const data::ByteRange>, std::vector<int64_t>& ids,
                    std::vector<size_t>& ends) {
  ids.clear();
  ends.clear();
  for (const char byte : text) {
    ids.push_back(static_cast<uint8_t>(byte));
    ends.push_back(ids.size());
  }
}

}  // namespace asterism::test
