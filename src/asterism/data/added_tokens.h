#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "asterism/data/byte_range.h"
#include "asterism/data/json_part.h"
#include "asterism/data/regex.h"

namespace asterism::data {

/// A text that is always one token, wherever it stands.
struct AddedToken {
  int64_t id = 0;
  std::string content;
  bool special = false;      // left out by a decoder that skips special tokens
  bool normalized = false;   // looked for in a second pass, in what the tokens of the first pass leave over
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool single_word = false;  // only where no word character (letter, mark, digit, connector) touches it
};

/// A part of a text: one added token, or text between added tokens.
struct Stretch {
  ByteRange range;
  const AddedToken* token = nullptr;  // nullptr: text
};

/// The "added_tokens" of a tokenizer.json and the search for them. Immutable; safe to share between threads.
class AddedTokens {
 public:
  /// InputError for an empty content, and for an id or a content that occurs twice.
  explicit AddedTokens(const JsonPart& list);

  /// Cuts valid UTF-8 into stretches, in order and without gaps. Two passes from left to right, longest match first:
  /// tokens that are not `normalized`, then the others in each text stretch, whose ends count as ends of the text. A
  /// match that `single_word` rejects is passed over as a whole. White space that two tokens claim belongs to the
  /// first, and what is left of the second is still that token. No token that touches a range of `as_text` (ascending,
  /// disjoint) is seen, and none takes white space from it along; the text there joins the text beside it.
  /// Time O(text length * longest content).
  std::vector<Stretch> split(std::string_view text, std::span<const ByteRange> as_text) const;

  std::span<const AddedToken> tokens() const { return tokens_; }
  const AddedToken* find(int64_t id) const;
  const AddedToken* find(std::string_view content) const;

 private:
  // A tree of bytes over the contents of one pass.
  class Trie {
   public:
    Trie();
    void insert(std::string_view content, uint32_t token);
    /// The first place from `at` on where a content may begin; `limit` without one.
    size_t next_start(std::string_view text, size_t at, size_t limit) const;
    /// Index of the longest content that stands at `at` and ends by `limit`; kNoToken if none does.
    uint32_t longest(std::string_view text, size_t at, size_t limit) const;

   private:
    struct Edge {
      unsigned char byte;
      uint32_t node;
    };
    struct Node {
      uint32_t token = kNoToken;
      std::vector<Edge> edges;
    };
    const Edge* edge(uint32_t node, char byte) const;
    std::vector<Node> nodes_;
    std::array<bool, 256> starts_{};
    std::string start_bytes_;  // those of starts_
  };
  static constexpr uint32_t kNoToken = ~uint32_t{0};

  void scan(const Trie& trie, std::string_view text, ByteRange part, std::span<const ByteRange> as_text,
            std::vector<Stretch>& out) const;
  bool stands_alone(std::string_view text, ByteRange match, ByteRange part) const;
  bool is_word(char32_t character) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<int64_t, uint32_t> by_id_;
  std::unordered_map<std::string_view, uint32_t> by_content_;  // views into tokens_
  Trie first_pass_, second_pass_;
  Regex word_;
};

}  // namespace asterism::data
