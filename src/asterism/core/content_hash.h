#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace asterism {

/// XXH3 of 128 bits over everything it is given, however it is cut into pieces. It finds what goes wrong by itself (a
/// flipped bit, a cut or swapped block); it does not withstand somebody who looks for two contents with one hash.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void update(const void* data, size_t bytes);
  void update(std::string_view content) { update(content.data(), content.size()); }
  /// Of what came so far: 32 hexadecimal digits, as `xxhsum -H128` prints them.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Of a whole file. InputError when it cannot be read.
std::string content_hash_of_file(const std::filesystem::path& path);

}  // namespace asterism
