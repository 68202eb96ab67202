#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace asterism::test {

/// An empty folder that is removed with its contents at the end of its scope.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// Writes a file of this folder and returns its path.
  std::filesystem::path write(const std::string& name, std::string_view content) const;

 private:
  std::filesystem::path path_;
};

/// Every byte is a token with its value as id: the tokenizer of tests that need none.
void tokenize_bytes(std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends);

/// tests/golden/encoding/<name>.
nlohmann::ordered_json encoding_golden(const std::string& name);

}  // namespace asterism::test
