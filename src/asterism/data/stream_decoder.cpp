#include "asterism/data/stream_decoder.h"

#include "asterism/data/marker_search.h"
#include "asterism/data/recover_grammar.h"
#include "asterism/data/strict_grammar.h"
#include "asterism/data/utf8.h"

namespace asterism::data {

StreamDecoder::StreamDecoder(const DecodeOptions& options, DeltaFunction on_delta)
    : strict_(options.mode == DecodeMode::Strict) {
  if (strict_) {
    grammar_ = std::make_unique<StrictGrammar>(options, std::move(on_delta));
  } else {
    grammar_ = std::make_unique<RecoverGrammar>(options, std::move(on_delta));
  }
}

void StreamDecoder::feed(std::string_view bytes) {
  undecoded_ += bytes;
  read_characters(/*at_end=*/false);
}

DecodedChat StreamDecoder::finish() {
  read_characters(/*at_end=*/true);
  DecodedChat chat = grammar_->end(pending_);
  if (found_invalid_utf8_) chat.note(DecodeIssue::InvalidUtf8);
  return chat;
}

void StreamDecoder::read_characters(bool at_end) {
  size_t at = 0;
  for (;;) {
    const std::string_view rest = std::string_view(undecoded_).substr(at);
    const size_t valid = find_invalid_utf8(rest).value_or(rest.size());
    read(rest.substr(0, valid));
    at += valid;
    if (at == undecoded_.size()) break;
    const size_t length = read_utf8(undecoded_, at).length;
    if (!at_end && at + length == undecoded_.size()) break;  // the next piece may complete the character
    read_invalid(decoded_bytes_ + at);
    at += length;
  }
  decoded_bytes_ += at;
  undecoded_.erase(0, at);
}

void StreamDecoder::read_invalid(size_t offset) {
  if (strict_) {
    throw ChatError("invalid_utf8", std::nullopt, asterism::text("byte ", offset, " of the completion is not UTF-8"));
  }
  found_invalid_utf8_ = true;
  read("\uFFFD");
}

void StreamDecoder::read(std::string_view text) {
  pending_ += text;
  std::string_view rest = pending_;
  for (;;) {
    const std::span<const std::string_view> markers = grammar_->markers();
    const MarkerMatch match = find_marker(rest, markers);
    if (match.begin > 0) grammar_->text(rest.substr(0, match.begin));
    rest.remove_prefix(match.begin);
    if (!match.marker) break;
    rest.remove_prefix(markers[*match.marker].size());
    grammar_->marker(*match.marker);
  }
  pending_.erase(0, pending_.size() - rest.size());
}

}  // namespace asterism::data
