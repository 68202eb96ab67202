#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace asterism::data {

/// Remembers the tokens of short pieces of text: most pieces of a natural text are words seen before. Of fixed size,
/// newer pieces displace older ones; not safe to share between threads.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 15;
  static constexpr size_t kMaxTokens = 4;
  struct Token {
    uint32_t id : 28;
    uint32_t length : 4;  // in bytes; 0 after the last token
  };
  using Tokens = std::array<Token, kMaxTokens>;

  /// The bytes of a piece and their number as two words.
  struct Key {
    uint64_t low = 0, high = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };

  PieceCache();

  /// `piece` has 1 to kMaxBytes bytes.
  static Key key_of(std::string_view piece);
  /// The tokens of a piece, or nullptr. Valid until the next insertion.
  const Tokens* find(const Key& key) const {
    const Set& set = sets_[set_of(key)];
    if (set.newer.key == key) return &set.newer.tokens;
    return set.older.key == key ? &set.older.tokens : nullptr;
  }
  /// Begins to load what find() will look at.
  void prefetch(const Key& key) const { __builtin_prefetch(&sets_[set_of(key)]); }
  /// The key must not be in the cache.
  void insert(const Key& key, const Tokens& tokens);

 private:
  struct Entry {
    Key key;  // no piece has the key zero
    Tokens tokens{};
  };
  struct alignas(64) Set {  // a cache line
    Entry newer, older;
  };
  static constexpr int kSetBits = 13;  // 2^13 sets of 64 bytes: 512 KB, which a second-level cache holds
  static size_t set_of(const Key& key);

  std::vector<Set> sets_;
};

inline size_t PieceCache::set_of(const Key& key) {
  const uint64_t mixed = (key.low ^ (key.high * 0xC2B2AE3D27D4EB4Full)) * 0x9E3779B97F4A7C15ull;
  return mixed >> (64 - kSetBits);
}

inline PieceCache::Key PieceCache::key_of(std::string_view piece) {
  const char* data = piece.data();
  const size_t size = piece.size();
  Key key;
  if (size >= 8) {
    std::memcpy(&key.low, data, 8);
    uint64_t last;
    std::memcpy(&last, data + size - 8, 8);
    key.high = size == 8 ? 0 : last >> (8 * (16 - size));
  } else if (size >= 4) {
    uint32_t first, last;
    std::memcpy(&first, data, 4);
    std::memcpy(&last, data + size - 4, 4);
    key.low = first | uint64_t{last} << (8 * (size - 4));
  } else {
    for (size_t i = 0; i < size; ++i) key.low |= uint64_t{static_cast<unsigned char>(data[i])} << (8 * i);
  }
  key.high |= uint64_t{size} << 56;
  return key;
}

}  // namespace asterism::data
