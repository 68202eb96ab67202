#include "asterism/data/tokenizer.h"

#include <algorithm>
#include <cstring>
#include <iomanip>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/rng.h"
#include "asterism/data/added_tokens.h"
#include "asterism/data/bpe.h"
#include "asterism/data/pre_tokenizer.h"
#include "asterism/data/tokenizer_file.h"
#include "asterism/data/utf8.h"

namespace asterism::data {

namespace {

/// Working memory for as many calls as run at a time. A call has its own, so there is no lock while it works, and the
/// pieces that it remembers serve the calls after it.
class ScratchPool {
 public:
  std::unique_ptr<Bpe::Scratch> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Bpe::Scratch>();
    std::unique_ptr<Bpe::Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Bpe::Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Bpe::Scratch>> free_;
};

}  // namespace

struct Tokenizer::Parts {
  Bpe bpe;
  AddedTokens added;
  PreTokenizer pre_tokenizer;
  std::string name;
  std::string fingerprint;
  mutable ScratchPool scratch = {};
};

namespace {

/// Accepts nothing (null), or a ByteLevel part, or a Sequence of accepted parts.
void check_only_byte_level(const JsonPart& part, const char* members) {
  const std::string& type = part.at("type").as_string();
  if (type == "ByteLevel") return;
  if (type != "Sequence") part.fail("type \"", type, "\" is not supported; expected ByteLevel");
  const JsonPart list = part.at(members);
  for (size_t i = 0; i < list.array_size(); ++i) check_only_byte_level(list.element(i), members);
}

void check_normalizer(const JsonPart& part) {
  const std::string& type = part.at("type").as_string();
  if (type != "Sequence") part.fail("type \"", type, "\" is not supported; expected null or an empty Sequence");
  const JsonPart list = part.at("normalizers");
  for (size_t i = 0; i < list.array_size(); ++i) check_normalizer(list.element(i));
}

void check_surroundings(const JsonPart& file) {
  for (const char* name : {"truncation", "padding"}) {
    if (const auto part = file.find(name))
      part->fail("is set; only null is supported, texts are never cut or filled here");
  }
  if (const auto part = file.find("normalizer")) check_normalizer(*part);
  if (const auto part = file.find("post_processor")) check_only_byte_level(*part, "processors");
  check_only_byte_level(file.at("decoder"), "decoders");
}

// Added tokens may repeat entries of the model, but one id is one text and one text is one id.
void check_conflicts(const JsonPart& list, const AddedTokens& added, const Bpe& bpe) {
  for (size_t i = 0; i < added.tokens().size(); ++i) {
    const AddedToken& token = added.tokens()[i];
    const auto model_id = bpe.token_id(token.content);
    if (model_id && *model_id != token.id) {
      list.element(i).fail("\"", token.content, "\" has id ", token.id, ", but id ", *model_id, " in the model");
    }
    const bool taken = token.id < bpe.id_limit() && !bpe.token_text(token.id).empty();
    if (taken && !model_id) {
      list.element(i).fail("\"", token.content, "\" has id ", token.id, ", which is \"", bpe.token_text(token.id),
                           "\" in the model");
    }
  }
}

// The canonical dump has sorted keys and no layout, so it is the content.
std::string fingerprint_of(const nlohmann::json& rest, const Bpe& bpe) {
  const std::string content = rest.dump();
  uint64_t state = mix_bits(bpe.content_hash() ^ content.size());
  for (size_t at = 0; at < content.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, content.data() + at, std::min<size_t>(8, content.size() - at));
    state = mix_bits(state ^ word);
  }
  std::ostringstream out;
  out << std::hex << std::setw(16) << std::setfill('0') << state;
  return out.str();
}

void check_ranges(std::span<const ByteRange> ranges, std::string_view text) {
  const auto on_character = [&](size_t at) {
    return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
  };
  size_t previous_end = 0;
  for (const ByteRange& range : ranges) {
    const bool in_order = previous_end <= range.begin && range.begin <= range.end && range.end <= text.size();
    if (!in_order || !on_character(range.begin) || !on_character(range.end)) {
      input_error("tokenizer: the range of bytes [", range.begin, ", ", range.end, ") to take as text does not follow ",
                  previous_end, " on character boundaries of a text of ", text.size(), " bytes");
    }
    previous_end = range.end;
  }
}

}  // namespace

/// One call of Tokenizer::encode: appends tokens, and their places where these are asked for.
class Tokenizer::TextEncoder {
 public:
  TextEncoder(const Parts& parts, std::string_view text, std::vector<int64_t>& ids, std::vector<ByteRange>* ranges)
      : parts_(parts), text_(text), ids_(ids), ranges_(ranges), scratch_(parts.scratch.take()) {
    ids_.reserve(text.size() / 4);
    if (ranges_ != nullptr) ranges_->reserve(text.size() / 4);
  }
  ~TextEncoder() { parts_.scratch.give_back(std::move(scratch_)); }
  TextEncoder(const TextEncoder&) = delete;
  TextEncoder& operator=(const TextEncoder&) = delete;

  void add_token(const AddedToken& token, ByteRange place) {
    ids_.push_back(token.id);
    if (ranges_ != nullptr) ranges_->push_back(place);
  }

  void add_text(ByteRange stretch) {
    // One piece behind: what a piece needs is on its way from memory while the one before it is done.
    Piece waiting{};
    parts_.pre_tokenizer.for_each_piece(text_.substr(stretch.begin, stretch.size()), [&](Piece piece) {
      piece.range = {stretch.begin + piece.range.begin, stretch.begin + piece.range.end};
      Bpe::prefetch(text_.substr(piece.range.begin, piece.range.size()), *scratch_);
      add_piece(std::exchange(waiting, piece));
    });
    add_piece(waiting);
  }

 private:
  void add_piece(const Piece& piece) {
    std::string_view bytes = text_.substr(piece.range.begin, piece.range.size());
    if (piece.space_before) bytes = spaced_.assign(" ").append(bytes);
    if (bytes.size() > std::numeric_limits<uint32_t>::max()) {
      input_error("tokenizer: a piece of ", bytes.size(), " bytes without a place to split; the limit is 4 GiB");
    }
    size_t begin = piece.range.begin;
    size_t end = piece.space_before ? begin - 1 : begin;  // may wrap; the first token has at least the space's byte
    parts_.bpe.encode(bytes, *scratch_, [&](int64_t id, size_t length) {
      ids_.push_back(id);
      end += length;
      if (ranges_ != nullptr) ranges_->push_back({begin, end});
      begin = end;
    });
  }

  const Parts& parts_;
  std::string_view text_;
  std::vector<int64_t>& ids_;
  std::vector<ByteRange>* ranges_;
  std::string spaced_;
  std::unique_ptr<Bpe::Scratch> scratch_;
};

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::filesystem::path& folder_or_file) {
  const bool is_folder = std::filesystem::is_directory(folder_or_file);
  const std::filesystem::path path = is_folder ? folder_or_file / "tokenizer.json" : folder_or_file;
  if (!std::filesystem::exists(path)) {
    input_error(path.string(), ": no such file; expected the tokenizer.json of the model or the folder that holds it");
  }
  return parse(MappedFile::open(path)->text(), path.string());
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& name) {
  TokenizerFile read = read_tokenizer_file(json, name);
  const JsonPart file(read.rest, name);
  check_surroundings(file);
  const nlohmann::json none = nlohmann::json::array();
  const JsonPart added = file.find("added_tokens").value_or(JsonPart(none, name + ".added_tokens"));
  auto parts = std::unique_ptr<Parts>(new Parts{Bpe(file.at("model"), std::move(read.tables)), AddedTokens(added),
                                                PreTokenizer(file.at("pre_tokenizer")), name, ""});
  parts->fingerprint = fingerprint_of(read.rest, parts->bpe);
  check_conflicts(added, parts->added, parts->bpe);
  return Tokenizer(std::move(parts));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  encode_stretches(text, {}, ids, nullptr);
  return ids;
}

Encoding Tokenizer::encode_with_ranges(std::string_view text, std::span<const ByteRange> as_text) const {
  Encoding out;
  encode_stretches(text, as_text, out.ids, &out.ranges);
  return out;
}

void Tokenizer::encode_stretches(std::string_view text, std::span<const ByteRange> as_text, std::vector<int64_t>& ids,
                                 std::vector<ByteRange>* ranges) const {
  if (const auto bad = find_invalid_utf8(text)) {
    input_error("tokenizer: the text is not UTF-8 at byte ", *bad, " of ", text.size());
  }
  check_ranges(as_text, text);
  TextEncoder encoder(*parts_, text, ids, ranges);
  for (const Stretch& stretch : parts_->added.split(text, as_text)) {
    if (stretch.token == nullptr) {
      encoder.add_text(stretch.range);
    } else {
      encoder.add_token(*stretch.token, stretch.range);
    }
  }
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special) const {
  return replace_invalid_utf8(decode_bytes(ids, skip_special));
}

std::string Tokenizer::decode_bytes(std::span<const int64_t> ids, bool skip_special) const {
  std::string out;
  for (const int64_t id : ids) {
    if (const AddedToken* added = parts_->added.find(id)) {
      if (!skip_special || !added->special) out += added->content;
      continue;
    }
    token_text(id);  // throws for an id without a token
    out += parts_->bpe.token_bytes(id);
  }
  return out;
}

int64_t Tokenizer::vocab_size() const {
  int64_t size = parts_->bpe.id_limit();
  for (const AddedToken& token : parts_->added.tokens()) size = std::max(size, token.id + 1);
  return size;
}

std::optional<int64_t> Tokenizer::token_id(std::string_view token_text) const {
  if (const AddedToken* added = parts_->added.find(token_text)) return added->id;
  return parts_->bpe.token_id(token_text);
}

bool Tokenizer::has_token(int64_t id) const {
  if (parts_->added.find(id) != nullptr) return true;
  return id >= 0 && id < parts_->bpe.id_limit() && !parts_->bpe.token_text(id).empty();
}

const std::string& Tokenizer::token_text(int64_t id) const {
  if (const AddedToken* added = parts_->added.find(id)) return added->content;
  if (!has_token(id))
    input_error(parts_->name, ": no token has id ", id, "; the vocabulary has ids below ", vocab_size());
  return parts_->bpe.token_text(id);
}

bool Tokenizer::is_special(int64_t id) const {
  const AddedToken* added = parts_->added.find(id);
  return added != nullptr && added->special;
}

const std::string& Tokenizer::fingerprint() const {
  return parts_->fingerprint;
}

}  // namespace asterism::data
