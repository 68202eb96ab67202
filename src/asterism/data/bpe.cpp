#include "asterism/data/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/data/byte_alphabet.h"

namespace asterism::data {

namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr int64_t kMaxId = (1 << 24) - 1;  // far above any vocabulary; keeps a bad id from reserving gigabytes
// Up to here the lowest rank is looked for one by one, which needs no queue and no links.
constexpr size_t kFewBytes = 48;

// C0, C1 and F5 to FF occur in no UTF-8 text, so a vocabulary may lack them.
bool occurs_in_utf8(int byte) {
  return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
}

uint32_t hash_of(std::string_view token_text) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(token_text));
}

void check_options(const JsonPart& model) {
  const std::string& type = model.at("type").as_string();
  if (type != "BPE") model.fail("type \"", type, "\" is not supported; expected \"BPE\"");
  for (const char* name : {"dropout", "unk_token"}) {
    if (model.find(name)) model.fail(name, " is set; only null is supported");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto affix = model.find(name);
    if (affix && !affix->as_string().empty()) model.fail(name, " is set; only null or \"\" is supported");
  }
  if (model.flag("byte_fallback", false)) model.fail("byte_fallback is true; only false is supported");
}

}  // namespace

Bpe::Bpe(const JsonPart& model, BpeTables tables) : merges_(tables.merges.size()) {
  check_options(model);
  const JsonPart vocab = model.at("vocab");
  read_vocabulary(vocab, std::move(tables.vocab));
  find_byte_tokens(vocab);
  read_merges(model.at("merges"), tables.merges);
  if (model.flag("ignore_merges", false)) index_whole_pieces();
}

void Bpe::read_vocabulary(const JsonPart& vocab, std::vector<BpeTables::Entry> entries) {
  if (!vocab.value().is_object()) vocab.fail("expected an object of token -> id, found ", vocab.value().type_name());
  if (entries.empty()) vocab.fail("is empty");
  int64_t largest = 0;
  for (const auto& [token, id] : entries) {
    if (id < 0 || id > kMaxId)
      vocab.fail("token \"", token, "\" has id ", id, "; expected an integer from 0 to ", kMaxId);
    if (token.empty()) vocab.fail("the empty text has id ", id, "; a token needs at least one character");
    largest = std::max(largest, id);
  }

  texts_.resize(largest + 1);
  bytes_.resize(largest + 1);
  lengths_.resize(largest + 1);
  for (auto& [token, id] : entries) {
    if (!texts_[id].empty()) vocab.fail("id ", id, " belongs to both \"", texts_[id], "\" and \"", token, "\"");
    bytes_[id] = bytes_of_characters(token).value_or(token);  // reserved tokens may be spelled in other characters
    lengths_[id] = static_cast<uint32_t>(bytes_[id].size());
    texts_[id] = std::move(token);
  }
  build_index(vocab);
}

void Bpe::build_index(const JsonPart& vocab) {
  index_.resize(std::bit_ceil(2 * texts_.size() + 1));
  for (uint32_t id = 0; id < texts_.size(); ++id) {
    if (texts_[id].empty()) continue;
    const uint32_t hash = hash_of(texts_[id]);
    IndexSlot& slot = index_[index_slot(hash, texts_[id])];
    if (slot.id != kNoId) vocab.fail("token \"", texts_[id], "\" has two ids, ", slot.id, " and ", id);
    slot = {hash, id};
    content_hash_ = mix_bits(content_hash_ ^ id ^ uint64_t{hash} << 32);
  }
}

// The slot that holds the token, or the free one where it belongs.
size_t Bpe::index_slot(uint32_t hash, std::string_view token_text) const {
  const size_t mask = index_.size() - 1;
  size_t slot = hash & mask;
  while (index_[slot].id != kNoId && (index_[slot].hash != hash || texts_[index_[slot].id] != token_text)) {
    slot = (slot + 1) & mask;
  }
  return slot;
}

uint32_t Bpe::find_token(std::string_view token_text) const {
  return index_[index_slot(hash_of(token_text), token_text)].id;
}

void Bpe::find_byte_tokens(const JsonPart& vocab) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& character = byte_character(static_cast<unsigned char>(byte));
    byte_tokens_[byte] = find_token(character);
    if (byte_tokens_[byte] == kNoId && occurs_in_utf8(byte)) {
      vocab.fail("has no token for byte ", byte, " (\"", character, "\"), so some texts could not be written");
    }
  }
}

void Bpe::read_merges(const JsonPart& merges, const std::vector<BpeTables::Merge>& entries) {
  if (!merges.value().is_array()) merges.fail("expected an array, found ", merges.value().type_name());
  const auto fail = [&](size_t rank, const auto&... parts) { input_error(merges.place(), "[", rank, "]: ", parts...); };
  first_merges_.assign(size_t{1} << 16, kNoMerge);
  std::string joined;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const auto& [left, right] = entries[rank];
    joined.assign(left).append(right);
    const auto id_of = [&](std::string_view token) {
      const uint32_t id = find_token(token);
      if (id == kNoId) fail(rank, "\"", token, "\" is not in the vocabulary");
      return id;
    };
    const uint32_t left_id = id_of(left), right_id = id_of(right);
    const PackedMerge merge = pack_merge(static_cast<uint32_t>(rank), id_of(joined));
    const PackedMerge known = merges_.insert(left_id, right_id, merge);
    if (known != kNoMerge) fail(rank, "repeats merge ", merge_rank(known));
    content_hash_ = mix_bits(content_hash_ ^ left_id ^ uint64_t{right_id} << 32);
  }
  for (size_t pair = 0; pair < first_merges_.size(); ++pair) {
    first_merges_[pair] = merges_.find(byte_tokens_[pair >> 8], byte_tokens_[pair & 0xFF]);
  }
}

void Bpe::index_whole_pieces() {
  for (uint32_t id = 0; id < texts_.size(); ++id) {
    if (!texts_[id].empty() && bytes_of_characters(texts_[id])) whole_pieces_.emplace(bytes_[id], id);
  }
}

void Bpe::encode(std::string_view bytes, Scratch& scratch, std::vector<int64_t>& ids) const {
  if (bytes.empty()) return;
  if (bytes.size() > PieceCache::kMaxBytes) return merge(bytes, scratch, ids);
  const PieceCache::Key key = PieceCache::key_of(bytes);
  if (const PieceCache::Tokens* known = scratch.cache_.find(key)) {
    for (const uint32_t id : *known) {
      if (id == PieceCache::kNone) break;
      ids.push_back(id);
    }
    return;
  }
  const size_t before = ids.size();
  merge(bytes, scratch, ids);
  const std::span<const int64_t> tokens = std::span(ids).subspan(before);
  if (tokens.size() <= PieceCache::kMaxTokens) scratch.cache_.insert(key, tokens);
}

void Bpe::merge(std::string_view bytes, Scratch& scratch, std::vector<int64_t>& ids) const {
  if (!whole_pieces_.empty()) {
    if (const auto whole = whole_pieces_.find(bytes); whole != whole_pieces_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  if (bytes.size() <= kFewBytes) return merge_few(bytes, ids);
  merge_many(bytes, scratch, ids);
}

void Bpe::merge_few(std::string_view bytes, std::vector<int64_t>& ids) const {
  std::array<uint32_t, kFewBytes> symbols;
  std::array<PackedMerge, kFewBytes> merges;  // of each symbol with the next
  size_t count = bytes.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = byte_tokens_[static_cast<unsigned char>(bytes[i])];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = first_merge(bytes[i], bytes[i + 1]);
  while (count > 1) {
    const auto begin = merges.begin();
    const auto last = begin + static_cast<std::ptrdiff_t>(count) - 1;
    const auto lowest = std::min_element(begin, last);  // the leftmost of equal ones
    if (*lowest == kNoMerge) break;
    const auto at = static_cast<size_t>(lowest - begin);
    symbols[at] = merge_result(*lowest);
    const size_t moved = count - at - 2;
    std::memmove(&symbols[at + 1], &symbols[at] + 2, moved * sizeof(symbols[0]));
    if (moved > 0) std::memmove(&merges[at], &merges[at + 1], moved * sizeof(merges[0]));
    --count;
    if (at > 0) merges[at - 1] = merges_.find(symbols[at - 1], symbols[at]);
    if (at + 1 < count) merges[at] = merges_.find(symbols[at], symbols[at + 1]);
  }
  ids.insert(ids.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
}

void Bpe::merge_many(std::string_view bytes, Scratch& scratch, std::vector<int64_t>& ids) const {
  auto& symbols = scratch.symbols_;
  auto& queue = scratch.queue_;
  const auto candidate = [](PackedMerge merge, uint32_t left) { return uint64_t{merge_rank(merge)} << 32 | left; };
  const auto count = static_cast<uint32_t>(bytes.size());
  symbols.clear();
  queue.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const PackedMerge merge = last ? kNoMerge : first_merge(bytes[i], bytes[i + 1]);
    const uint32_t id = byte_tokens_[static_cast<unsigned char>(bytes[i])];
    symbols.push_back({id, i == 0 ? kNone : i - 1, last ? kNone : i + 1, i + 1, merge});
    if (merge != kNoMerge) queue.push_back(candidate(merge, i));
  }
  const auto update = [&](uint32_t left) {
    Scratch::Symbol& symbol = symbols[left];
    symbol.merge = symbol.next == kNone ? kNoMerge : merges_.find(symbol.id, symbols[symbol.next].id);
    if (symbol.merge == kNoMerge) return;
    queue.push_back(candidate(symbol.merge, left));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };

  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t lowest = queue.back();
    queue.pop_back();
    const auto at = static_cast<uint32_t>(lowest);
    Scratch::Symbol& left = symbols[at];
    if (left.merge == kNoMerge || candidate(left.merge, at) != lowest) continue;  // a symbol has been merged since
    Scratch::Symbol& right = symbols[left.next];
    left.id = merge_result(left.merge);
    left.end = right.end;
    left.next = right.next;
    right.merge = kNoMerge;
    if (left.next != kNone) symbols[left.next].previous = at;
    update(at);
    if (left.previous != kNone) update(left.previous);
  }
  for (uint32_t i = 0; i < count; i = symbols[i].end) {  // the symbol after one starts where that one ends
    ids.push_back(symbols[i].id);
  }
}

std::optional<int64_t> Bpe::token_id(std::string_view token_text) const {
  const uint32_t id = find_token(token_text);
  return id == kNoId ? std::nullopt : std::optional<int64_t>(id);
}

}  // namespace asterism::data
