#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/byte_range.h"
#include "asterism/data/deepseek_split.h"
#include "asterism/data/json_part.h"
#include "asterism/data/regex.h"

namespace asterism::data {

/// A part of a text that is encoded by itself.
struct Piece {
  ByteRange range;
  bool space_before = false;  // its bytes are one space (not in the text) and then those of the range
};

/// The "pre_tokenizer" of a tokenizer.json: cuts text into pieces that no token crosses. Immutable; safe to share.
///
/// A list of steps, each applied to every piece of the step before by itself: the end of a piece is the end of input
/// for look-ahead. Supported: Sequence, Split (pattern Regex or String, all behaviours, invert), Digits, and ByteLevel,
/// which must be there and last, because steps after it would see bytes instead of text.
class PreTokenizer {
 public:
  /// InputError that names the part that is not supported.
  explicit PreTokenizer(const JsonPart& spec);

  /// The pieces of `text` (valid UTF-8), in order; never empty ones. With Split behaviour Removed they leave gaps.
  std::vector<Piece> split(std::string_view text) const;
  /// Calls `visit` for each of these pieces.
  template <typename Visit>
  void for_each_piece(std::string_view text, Visit&& visit) const {
    if (!is_deepseek_) {
      for (const Piece& piece : split_by_steps(text)) visit(piece);
      return;
    }
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = deepseek_piece_end(text, begin);
      visit(Piece{{begin, end}});
      begin = end;
    }
  }

 private:
  enum class Behaviour { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Step {
    std::string source;  // of the pattern
    Regex pattern;
    Behaviour behaviour = Behaviour::kIsolated;
    bool invert = false;  // what lies between the matches counts as the matches
  };
  struct Part {
    ByteRange range;
    bool is_match = false;
  };

  void read(const JsonPart& spec);
  void read_split(const JsonPart& spec);
  void read_digits(const JsonPart& spec);
  void read_byte_level(const JsonPart& spec);
  bool steps_are_deepseek() const;
  static Behaviour read_behaviour(const JsonPart& name);
  static void apply(const Step& step, std::string_view text, ByteRange piece, RegexScratch& scratch,
                    std::vector<ByteRange>& out);
  static void join(Behaviour behaviour, std::vector<Part>& parts);
  std::vector<Piece> split_by_steps(std::string_view text) const;
  void split_byte_level(std::string_view text, ByteRange piece, RegexScratch& scratch, std::vector<Piece>& out) const;

  std::vector<Step> steps_;
  bool is_deepseek_ = false;  // the steps are those that deepseek_split.h does at once
  bool has_byte_level_ = false;
  bool add_prefix_space_ = false;
  std::optional<Step> byte_level_step_;  // the pattern that ByteLevel itself may split by
};

}  // namespace asterism::data
