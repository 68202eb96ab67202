#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/merge_table.h"

namespace asterism::data {

/// A merge of two neighbouring tokens, as ids.
struct TokenMerge {
  uint32_t left, right, result;
};

/// Tokens of whole characters (of two to four bytes) with which byte-pair encoding of valid UTF-8 may start in place of
/// their bytes and still give the same tokens. That is so for a character whose bytes become one token, with R the
/// largest rank among the merges this takes, when
///   - no merge of a rank up to R joins a part of the character with what stands beside it: then it comes about in
///   every
///     text, because one of its own merges is always the lower one, and
///   - no merge of a rank up to R takes the character as a whole: then it may be there from the start, because nothing
///     is done with it before it would have come about.
/// Both are read from the merges; a character that fails either is not here, and its bytes are merged as before.
class CharacterTokens {
 public:
  static constexpr uint32_t kNone = MergeTable::kNoToken;

  /// No character.
  CharacterTokens();
  /// `merges` by rank, `ranks` the same merges; `token_bytes` by id, `byte_tokens` by byte.
  CharacterTokens(std::span<const TokenMerge> merges, const MergeTable& ranks, std::span<const std::string> token_bytes,
                  const std::array<uint32_t, 256>& byte_tokens);

  /// The token of a character, or kNone. At most U+10FFFF.
  uint32_t find(char32_t character) const { return blocks_[block_of_[character / kBlock]][character % kBlock]; }

  /// How many characters have a token here.
  size_t size() const;

 private:
  static constexpr size_t kBlock = 64;  // characters that differ in their last byte only
  void insert(char32_t character, uint32_t token);

  std::vector<uint16_t> block_of_;
  std::vector<std::array<uint32_t, kBlock>> blocks_;  // the first is empty
};

}  // namespace asterism::data
