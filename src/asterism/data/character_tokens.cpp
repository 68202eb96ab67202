#include "asterism/data/character_tokens.h"

#include <algorithm>
#include <unordered_map>

#include "asterism/data/utf8.h"

namespace asterism::data {

namespace {

constexpr uint32_t kNoRank = MergeTable::kNoRank;
constexpr char32_t kCodePoints = 0x110000;

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// By the first byte of a character.
size_t length_of_character(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

/// The lowest rank of a merge whose result begins with the end of a character, by that end, or ends with the beginning
/// of one, by that beginning, and holds more than that.
class Straddling {
 public:
  void add(std::string_view result, uint32_t rank) {
    const auto first =
        static_cast<size_t>(std::find_if_not(result.begin(), result.end(), is_continuation) - result.begin());
    if (first == result.size()) return;  // lies in one character
    if (first > 0) note(ends_, result.substr(0, first), rank);
    size_t last = result.size() - 1;
    while (is_continuation(result[last])) --last;
    const std::string_view tail = result.substr(last);
    if (last > 0 && tail.size() < length_of_character(tail[0])) note(beginnings_, tail, rank);
  }

  /// The lowest rank of those that take a part of this character.
  uint32_t lowest(std::string_view character) const {
    uint32_t lowest = kNoRank;
    for (size_t cut = 1; cut < character.size(); ++cut) {
      lowest =
          std::min({lowest, rank_of(beginnings_, character.substr(0, cut)), rank_of(ends_, character.substr(cut))});
    }
    return lowest;
  }

 private:
  using Ranks = std::unordered_map<std::string, uint32_t>;

  static void note(Ranks& ranks, std::string_view part, uint32_t rank) {
    const auto known = ranks.emplace(part, rank).first;
    known->second = std::min(known->second, rank);
  }
  static uint32_t rank_of(const Ranks& ranks, std::string_view part) {
    const auto found = ranks.find(std::string(part));
    return found == ranks.end() ? kNoRank : found->second;
  }

  Ranks ends_, beginnings_;
};

/// What becomes of the bytes of a character by themselves.
struct Alone {
  uint32_t token;         // CharacterTokens::kNone: they stay several
  uint32_t highest_rank;  // of the merges done
};

Alone merge_alone(std::string_view character, std::span<const TokenMerge> merges, const MergeTable& ranks,
                  const std::array<uint32_t, 256>& byte_tokens) {
  std::vector<uint32_t> tokens;
  for (const char byte : character) tokens.push_back(byte_tokens[static_cast<unsigned char>(byte)]);
  uint32_t highest = 0;
  while (tokens.size() > 1) {
    uint32_t lowest = kNoRank;
    size_t left = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      const uint32_t rank = ranks.find(tokens[i], tokens[i + 1]);
      if (rank < lowest) lowest = rank, left = i;
    }
    if (lowest == kNoRank) return {CharacterTokens::kNone, kNoRank};
    highest = std::max(highest, lowest);
    tokens[left] = merges[lowest].result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(left) + 1);
  }
  return {tokens[0], highest};
}

}  // namespace

CharacterTokens::CharacterTokens() : block_of_(kCodePoints / kBlock) {
  blocks_.emplace_back().fill(kNone);
}

CharacterTokens::CharacterTokens(std::span<const TokenMerge> merges, const MergeTable& ranks,
                                 std::span<const std::string> token_bytes, const std::array<uint32_t, 256>& byte_tokens)
    : CharacterTokens() {
  Straddling straddling;
  std::vector<uint32_t> first_use(token_bytes.size(), kNoRank);  // the lowest rank of a merge that takes the token
  for (uint32_t rank = 0; rank < merges.size(); ++rank) {
    straddling.add(token_bytes[merges[rank].result], rank);
    for (const uint32_t part : {merges[rank].left, merges[rank].right}) {
      first_use[part] = std::min(first_use[part], rank);
    }
  }
  for (const std::string& bytes : token_bytes) {
    if (bytes.size() < 2 || bytes.size() > 4) continue;
    const Utf8Sequence character = read_utf8(bytes, 0);
    if (!character.valid || character.length != bytes.size()) continue;
    const Alone alone = merge_alone(bytes, merges, ranks, byte_tokens);
    if (alone.token == kNone) continue;
    if (std::min(first_use[alone.token], straddling.lowest(bytes)) <= alone.highest_rank) continue;
    insert(character.value, alone.token);
  }
}

void CharacterTokens::insert(char32_t character, uint32_t token) {
  uint16_t& block = block_of_[character / kBlock];
  if (block == 0) {
    block = static_cast<uint16_t>(blocks_.size());
    blocks_.emplace_back().fill(kNone);
  }
  blocks_[block][character % kBlock] = token;
}

size_t CharacterTokens::size() const {
  size_t count = 0;
  for (const auto& block : blocks_) {
    count += kBlock - static_cast<size_t>(std::count(block.begin(), block.end(), kNone));
  }
  return count;
}

}  // namespace asterism::data
