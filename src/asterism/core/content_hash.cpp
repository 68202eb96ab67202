#include "asterism/core/content_hash.h"

#define XXH_INLINE_ALL  // compiled in here: no library at run time
#include <xxhash.h>

#include "asterism/core/file.h"

namespace asterism {

struct ContentHash::State {
  XXH3_state_t value;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->value);
}

ContentHash::~ContentHash() = default;

void ContentHash::update(const void* data, size_t bytes) {
  XXH3_128bits_update(&state_->value, data, bytes);
}

std::string ContentHash::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->value));
  std::string digits;
  for (const unsigned char byte : canonical.digest) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

std::string content_hash_of_file(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  ContentHash hash;
  hash.update(file->data(), file->size());
  return hash.hex();
}

}  // namespace asterism
