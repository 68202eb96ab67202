#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asterism/data/character_tokens.h"
#include "asterism/data/json_part.h"
#include "asterism/data/merge_table.h"
#include "asterism/data/piece_cache.h"
#include "asterism/data/tokenizer_file.h"

namespace asterism::data {

/// Byte-level byte-pair encoding of one piece of text: start from single bytes, then merge neighbours as long as the
/// merge table knows any two of them, always the pair of lowest rank and of those the leftmost. With "ignore_merges" a
/// piece that is a token as a whole is that token. Immutable once read; `encode` may run in many threads, each with its
/// own scratch.
class Bpe {
 public:
  class Scratch;

  /// Reads the "model" of a tokenizer.json, whose vocabulary and merges are in `tables` (gaps between ids are allowed).
  /// InputError for another type of model, for options that change the algorithm (dropout, unk_token, byte_fallback,
  /// prefixes and suffixes), for a token or an id used twice, for a byte without a token and for a merge that repeats
  /// or whose parts or result are no tokens.
  Bpe(const JsonPart& model, BpeTables tables);

  /// Calls visit(id, length in bytes) for each token of `bytes`, valid UTF-8 of less than 4 GiB, which they tile. Time
  /// O(n log n): a token is queued at most three times.
  template <typename Visit>
  void encode(std::string_view bytes, Scratch& scratch, Visit&& visit) const;
  /// Begins to load what encode() will look at first.
  static void prefetch(std::string_view bytes, const Scratch& scratch);

  std::optional<int64_t> token_id(std::string_view token_text) const;
  /// The largest id + 1.
  int64_t id_limit() const { return static_cast<int64_t>(texts_.size()); }
  /// The token as the file spells it; empty for an id without a token.
  const std::string& token_text(int64_t id) const { return texts_[id]; }
  /// The bytes the token stands for.
  const std::string& token_bytes(int64_t id) const { return bytes_[id]; }
  /// Depends on tokens, ids and merges.
  uint64_t content_hash() const { return content_hash_; }

 private:
  // Where a token text is: flat because loading looks up every merge three times.
  struct IndexSlot {
    uint32_t hash = 0;
    uint32_t id = kNoId;
  };
  static constexpr uint32_t kNoId = MergeTable::kNoToken;

  void read_vocabulary(const JsonPart& vocab, std::vector<BpeTables::Entry> entries);
  void read_merges(const JsonPart& merges, const std::vector<BpeTables::Merge>& entries);
  void find_byte_tokens(const JsonPart& vocab);
  void build_index(const JsonPart& vocab);
  void index_whole_pieces();
  size_t index_slot(uint32_t hash, std::string_view token_text) const;
  uint32_t find_token(std::string_view token_text) const;
  size_t merge(std::string_view bytes, Scratch& scratch) const;
  size_t start(std::string_view bytes, Scratch& scratch) const;
  size_t merge_few(size_t count, Scratch& scratch) const;
  size_t merge_many(size_t count, Scratch& scratch) const;
  static void remember(const PieceCache::Key& key, size_t count, Scratch& scratch);
  uint32_t first_rank(char left, char right) const {
    return first_ranks_[size_t{static_cast<unsigned char>(left)} << 8 | static_cast<unsigned char>(right)];
  }

  std::vector<std::string> texts_, bytes_;
  std::vector<IndexSlot> index_;  // open addressing, size a power of two, at most half full
  std::array<uint32_t, 256> byte_tokens_{};
  std::vector<uint32_t> first_ranks_;  // of two bytes
  MergeTable ranks_;
  CharacterTokens characters_;
  std::vector<uint32_t> results_;                                // of merges, by rank
  std::unordered_map<std::string_view, uint32_t> whole_pieces_;  // with ignore_merges: by bytes_
  uint64_t content_hash_ = 0;
};

/// Working memory of Bpe::encode, reused from piece to piece. Belongs to one Bpe: it remembers pieces.
class Bpe::Scratch {
  friend class Bpe;
  struct Symbol {
    uint32_t id;
    uint32_t previous, next;  // kNone at the ends
    uint32_t rank;            // of the merge with the next symbol; kNoRank once it is merged into its left neighbour
  };
  // What merging starts from: tokens of bytes or characters, where each ends in the piece, and the rank of its merge
  // with the next. The tokens that are left in the end take the first places.
  std::vector<uint32_t> tokens_, ends_, ranks_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> queue_;  // a heap of (rank, index of the left symbol), lowest first
  PieceCache cache_;
};

template <typename Visit>
void Bpe::encode(std::string_view bytes, Scratch& scratch, Visit&& visit) const {
  if (bytes.empty()) return;
  const bool is_short = bytes.size() <= PieceCache::kMaxBytes;
  const PieceCache::Key key = is_short ? PieceCache::key_of(bytes) : PieceCache::Key{};
  if (is_short) {
    if (const PieceCache::Tokens* known = scratch.cache_.find(key)) {
      for (const PieceCache::Token& token : *known) {
        if (token.length == 0) break;
        visit(int64_t{token.id}, size_t{token.length});
      }
      return;
    }
  }
  const size_t count = merge(bytes, scratch);
  if (is_short) remember(key, count, scratch);
  uint32_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    visit(int64_t{scratch.tokens_[i]}, size_t{scratch.ends_[i] - begin});
    begin = scratch.ends_[i];
  }
}

inline void Bpe::prefetch(std::string_view bytes, const Scratch& scratch) {
  if (bytes.size() <= PieceCache::kMaxBytes) scratch.cache_.prefetch(PieceCache::key_of(bytes));
}

}  // namespace asterism::data
