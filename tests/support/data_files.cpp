#include "tests/support/data_files.h"

#include <stdlib.h>

#include <fstream>
#include <stdexcept>

namespace asterism::test {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "asterism-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create " + pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a file left behind must not hide the test's own failure
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryFolder::write(const std::string& name, std::string_view content) const {
  const auto file = path_ / name;
  std::ofstream out(file, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file.string());
  return file;
}

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
