#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "asterism/data/byte_range.h"

namespace asterism::data {

/// Token ids of a text and, for each, the bytes of the text it stands for. Ranges ascend and do not overlap; unless the
/// tokenizer drops text (Split behaviour Removed), they tile the text. A range may end inside a character.
struct Encoding {
  std::vector<int64_t> ids;
  std::vector<ByteRange> ranges;
};

/// A byte-level BPE tokenizer as a Hugging Face tokenizer.json describes it: added tokens are cut out of the raw text
/// (added_tokens.h), the text between them is cut into pieces (pre_tokenizer.h), each piece is merged by rank (bpe.h).
/// It gives the ids of the reference library, without any begin or end token: those come from the chat encoding.
/// All const members may run in many threads at once.
class Tokenizer {
 public:
  /// Reads a tokenizer.json, or the one in a folder. InputError when the file is missing or damaged and for every part
  /// that is not supported, by name: other models, normalizers, post-processors than ByteLevel, truncation and padding.
  static Tokenizer load(const std::filesystem::path& folder_or_file);
  /// The same from the text of such a file; `name` stands for it in messages.
  static Tokenizer parse(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// InputError with the byte offset when `text` is not UTF-8.
  std::vector<int64_t> encode(std::string_view text) const;
  /// The same with the place of each token. No added token is seen that touches a range of `as_text`: user text that
  /// must not turn into markup. InputError unless these ranges ascend, do not overlap and lie on characters of the
  /// text.
  Encoding encode_with_ranges(std::string_view text, std::span<const ByteRange> as_text = {}) const;

  /// The text of the tokens, their bytes joined; ill-formed UTF-8 (a character cut in two) becomes U+FFFD, one for each
  /// maximal part. An added token gives its content as it stands (the reference library reads it in the byte alphabet,
  /// which breaks contents with letters such as "é"). `skip_special` leaves out added tokens that are marked special.
  /// InputError for an id without a token.
  std::string decode(std::span<const int64_t> ids, bool skip_special = false) const;
  /// The same before anything is replaced.
  std::string decode_bytes(std::span<const int64_t> ids, bool skip_special = false) const;

  /// The largest id + 1.
  int64_t vocab_size() const;
  /// The id of a token as the file spells it (added tokens as plain text, others in the byte alphabet: " the" is
  /// "Ġthe").
  std::optional<int64_t> token_id(std::string_view token_text) const;
  /// Whether a token has this id: there may be holes below vocab_size().
  bool has_token(int64_t id) const;
  /// The spelling of a token. InputError for an id without a token.
  const std::string& token_text(int64_t id) const;
  bool is_special(int64_t id) const;
  /// 16 hexadecimal digits that depend on the content of the file but not on its layout: equal for equal tokenizers.
  const std::string& fingerprint() const;

 private:
  struct Parts;
  class TextEncoder;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  void encode_stretches(std::string_view text, std::span<const ByteRange> as_text, std::vector<int64_t>& ids,
                        std::vector<ByteRange>* ranges) const;

  std::unique_ptr<const Parts> parts_;
};

}  // namespace asterism::data
