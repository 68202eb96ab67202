#include "tests/support/data_files.h"

#include <fstream>
#include <stdexcept>

namespace asterism::test {

void tokenize_bytes(std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends) {
  ids.clear();
  ends.clear();
  for (const char byte : text) {
    ids.push_back(static_cast<uint8_t>(byte));
    ends.push_back(ids.size());
  }
}

nlohmann::ordered_json encoding_golden(const std::string& name) {
  const auto path = std::filesystem::path(ASTERISM_SOURCE_DIR) / "tests/golden/encoding" / name;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return nlohmann::ordered_json::parse(in);
}

}  // namespace asterism::test
