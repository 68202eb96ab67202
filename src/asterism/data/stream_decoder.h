#pragma once

#include <memory>

#include "asterism/data/completion_grammar.h"

namespace asterism::data {

/// Decodes a completion that arrives in pieces: the text behind the prompt, with all its special tokens. Pieces may be
/// cut anywhere, within characters too. Message, deltas joined by kind, issues and errors depend on the whole text
/// alone, never on how it was cut.
class StreamDecoder {
 public:
  /// `on_delta` (may be empty) gets every part of the message as soon as no further text can change it: reasoning and
  /// content up to what could be the beginning of a marker, a tool call when its closing tag is there.
  explicit StreamDecoder(const DecodeOptions& options, DeltaFunction on_delta = {});

  /// In strict mode a ChatError as soon as the text is known to be wrong (StrictGrammar; invalid_utf8). Nothing may be
  /// fed behind it.
  void feed(std::string_view bytes);

  /// The end of the completion; the decoder is used up. In strict mode ChatError as above.
  DecodedChat finish();

 private:
  void read(std::string_view text);
  void read_invalid(size_t offset);
  void read_characters(bool at_end);

  const bool strict_;
  std::unique_ptr<CompletionGrammar> grammar_;
  std::string undecoded_;  // bytes that are not known to be characters yet
  std::string pending_;    // characters that may be the beginning of a marker
  size_t decoded_bytes_ = 0;
  bool found_invalid_utf8_ = false;
};

}  // namespace asterism::data
