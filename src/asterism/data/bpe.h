#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asterism/data/json_part.h"

namespace asterism::data {

/// Byte-level byte-pair encoding of one piece of text: start from single bytes, then merge neighbours as long as the
/// merge table knows any two of them, always the pair of lowest rank and of those the leftmost. Immutable once read;
/// `encode` may run in many threads, each with its own scratch.
class Bpe {
 public:
  class Scratch;

  /// Reads the "model" of a tokenizer.json: vocab (text -> id, gaps allowed) and merges ("a b" or ["a", "b"]).
  /// InputError for another type of model, for options that change the algorithm (dropout, unk_token, byte_fallback,
  /// prefixes and suffixes, ignore_merges), for an id used twice, for a byte without a token and for a merge that
  /// repeats or whose parts or result are no tokens.
  explicit Bpe(const JsonPart& model);
  Bpe(Bpe&&) = default;  // the index refers to the strings, so no copies
  Bpe& operator=(Bpe&&) = default;

  /// Appends the ids of `bytes` and, for each, the offset in `bytes` at which its bytes end. `bytes` must not contain
  /// bytes that never occur in UTF-8 and be shorter than 4 GiB. Time O(n log n).
  void encode(std::string_view bytes, Scratch& scratch, std::vector<int64_t>& ids, std::vector<size_t>& ends) const;

  std::optional<int64_t> token_id(std::string_view token_text) const;
  /// The largest id + 1.
  int64_t id_limit() const { return static_cast<int64_t>(texts_.size()); }
  /// The token as the file spells it; empty for an id without a token.
  const std::string& token_text(int64_t id) const { return texts_[id]; }
  /// The bytes the token stands for.
  const std::string& token_bytes(int64_t id) const { return bytes_[id]; }

 private:
  struct Merge {
    uint64_t pair = kNoPair;  // left id in the high half, right id in the low half
    uint32_t rank = 0;
    uint32_t result = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  static uint64_t pair_of(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  void read_vocabulary(const JsonPart& vocab);
  void read_merges(const JsonPart& merges);
  void find_byte_tokens(const JsonPart& vocab);
  size_t slot_of(uint64_t pair) const;
  const Merge* find_merge(uint32_t left, uint32_t right) const;
  void offer(Scratch& scratch, uint32_t left) const;
  void merge_all(Scratch& scratch) const;

  std::vector<std::string> texts_, bytes_;
  std::unordered_map<std::string_view, uint32_t> index_;  // views into texts_
  std::array<uint32_t, 256> byte_tokens_{};
  std::vector<Merge> merges_;  // open addressing, size a power of two, at most half full
};

/// Working memory of Bpe::encode, reused from piece to piece.
class Bpe::Scratch {
  friend class Bpe;
  struct Symbol {
    uint32_t id;              // kGone once merged into its left neighbour
    uint32_t previous, next;  // kNone at the ends
    uint32_t end;             // offset in the piece
  };
  struct Candidate {
    uint32_t rank, left;  // left: index of the left symbol
    uint64_t pair;        // what the two symbols were when this was found
    uint32_t result;
  };
  std::vector<Symbol> symbols_;
  std::vector<Candidate> queue_;  // a heap, lowest (rank, left) first
};

}  // namespace asterism::data
