#include "asterism/data/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/data/byte_alphabet.h"
#include "asterism/data/utf8.h"

namespace asterism::data {

namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr int64_t kMaxId = MergeTable::kMaxToken;
// Up to here the lowest rank is looked for one by one, which needs no queue and no links.
constexpr size_t kFew = 48;
constexpr size_t kBlock = 16;
constexpr int kPlaceBits = 6;  // kFew <= 2^6
constexpr int32_t kNoOrder = int32_t{MergeTable::kNoRank} << kPlaceBits;

// C0, C1 and F5 to FF occur in no UTF-8 text, so a vocabulary may lack them.
bool occurs_in_utf8(int byte) {
  return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
}

uint32_t hash_of(std::string_view token_text) {
  return static_cast<uint32_t>(std::hash<std::string_view>{}(token_text));
}

// Whole blocks of fixed length, which a compiler turns into vector instructions.
int32_t lowest_order(const int32_t* orders, size_t blocks) {
  int32_t lowest = kNoOrder;
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < kBlock; ++i) lowest = std::min(lowest, orders[block * kBlock + i]);
  }
  return lowest;
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

Bpe::Bpe(const JsonPart& model, BpeTables tables) : ranks_(tables.merges.size()) {
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
  for (auto& [token, id] : entries) {
    if (!texts_[id].empty()) vocab.fail("id ", id, " belongs to both \"", texts_[id], "\" and \"", token, "\"");
    bytes_[id] = bytes_of_characters(token).value_or(token);  // reserved tokens may be spelled in other characters
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
  if (entries.size() >= MergeTable::kNoRank) merges.fail("has ", entries.size(), " merges; more than can be held");
  std::string joined;
  std::vector<TokenMerge> merges_of_ids;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const auto& [left, right] = entries[rank];
    joined.assign(left).append(right);
    const auto id_of = [&](std::string_view token) {
      const uint32_t id = find_token(token);
      if (id == kNoId) fail(rank, "\"", token, "\" is not in the vocabulary");
      return id;
    };
    const uint32_t left_id = id_of(left), right_id = id_of(right);
    const uint32_t result = id_of(joined);
    results_.push_back(result);
    merges_of_ids.push_back({left_id, right_id, result});
    const uint32_t known = ranks_.insert(left_id, right_id, static_cast<uint32_t>(rank));
    if (known != MergeTable::kNoRank) fail(rank, "repeats merge ", known);
    content_hash_ = mix_bits(content_hash_ ^ left_id ^ uint64_t{right_id} << 32);
  }
  first_ranks_.resize(size_t{1} << 16);
  for (size_t pair = 0; pair < first_ranks_.size(); ++pair) {
    first_ranks_[pair] = ranks_.find(byte_tokens_[pair >> 8], byte_tokens_[pair & 0xFF]);
  }
  characters_ = CharacterTokens(merges_of_ids, ranks_, bytes_, byte_tokens_);
}

void Bpe::index_whole_pieces() {
  for (uint32_t id = 0; id < texts_.size(); ++id) {
    if (!texts_[id].empty() && bytes_of_characters(texts_[id])) whole_pieces_.emplace(bytes_[id], id);
  }
}

void Bpe::remember(const PieceCache::Key& key, size_t count, Scratch& scratch) {
  if (count > PieceCache::kMaxTokens) return;
  PieceCache::Tokens known{};
  uint32_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    known[i] = {scratch.tokens_[i], static_cast<uint32_t>((scratch.ends_[i] - begin) & PieceCache::kMaxBytes)};
    begin = scratch.ends_[i];
  }
  scratch.cache_.insert(key, known);
}

/// Leaves the tokens of the piece and their ends in `scratch` and returns their number.
size_t Bpe::merge(std::string_view bytes, Scratch& scratch) const {
  if (scratch.tokens_.size() < bytes.size()) {
    for (auto* list : {&scratch.tokens_, &scratch.ends_, &scratch.ranks_}) list->resize(bytes.size());
  }
  if (!whole_pieces_.empty()) {
    if (const auto whole = whole_pieces_.find(bytes); whole != whole_pieces_.end()) {
      scratch.tokens_[0] = whole->second;
      scratch.ends_[0] = static_cast<uint32_t>(bytes.size());
      return 1;
    }
  }
  const size_t starts = start(bytes, scratch);
  return starts <= kFew ? merge_few(starts, scratch) : merge_many(starts, scratch);
}

/// Fills the tokens to start from, with their ends and ranks, and returns their number.
size_t Bpe::start(std::string_view bytes, Scratch& scratch) const {
  uint32_t* const tokens = scratch.tokens_.data();
  uint32_t* const ends = scratch.ends_.data();
  uint32_t* const ranks = scratch.ranks_.data();
  size_t count = 0;
  bool after_byte = false;
  for (size_t at = 0; at < bytes.size();) {
    const bool is_ascii = static_cast<unsigned char>(bytes[at]) < 0x80;
    const Utf8Sequence character = is_ascii ? Utf8Sequence{1, true, 0} : read_utf8(bytes, at);
    const uint32_t token = is_ascii ? CharacterTokens::kNone : characters_.find(character.value);
    if (token != CharacterTokens::kNone) {
      if (count > 0) ranks[count - 1] = ranks_.find(tokens[count - 1], token);
      after_byte = false;
      at += character.length;
      tokens[count] = token;
      ends[count++] = static_cast<uint32_t>(at);
      continue;
    }
    for (const size_t end = at + character.length; at < end; ++at) {
      const uint32_t byte = byte_tokens_[static_cast<unsigned char>(bytes[at])];
      if (count > 0) {
        ranks[count - 1] = after_byte ? first_rank(bytes[at - 1], bytes[at]) : ranks_.find(tokens[count - 1], byte);
      }
      after_byte = true;
      tokens[count] = byte;
      ends[count++] = static_cast<uint32_t>(at + 1);
    }
  }
  ranks[count - 1] = MergeTable::kNoRank;
  return count;
}

size_t Bpe::merge_few(size_t count, Scratch& scratch) const {
  // A symbol stays at the place of its first start. Its order is the rank of its merge with the next one and then its
  // place: the lowest of these numbers is the merge to do. Places that begin no symbol have none.
  uint32_t* const symbols = scratch.tokens_.data();
  std::array<int32_t, kFew> orders;
  std::array<uint8_t, kFew + 1> previous, next;
  const size_t blocks = (count + kBlock - 1) / kBlock;
  const auto order = [this](uint32_t rank, size_t place) {
    __builtin_prefetch(results_.data() + rank);  // needed when this merge is done
    return static_cast<int32_t>(rank << kPlaceBits | place);
  };
  std::fill_n(orders.begin(), blocks * kBlock, kNoOrder);
  for (size_t i = 0; i < count; ++i) {
    orders[i] = order(scratch.ranks_[i], i);
    previous[i] = static_cast<uint8_t>(i - 1);
    next[i] = static_cast<uint8_t>(i + 1);
  }
  while (true) {
    const int32_t lowest = lowest_order(orders.data(), blocks);
    if (lowest >= kNoOrder) break;
    const size_t left = static_cast<size_t>(lowest) & ((1u << kPlaceBits) - 1);
    const size_t right = next[left], after = next[right];
    symbols[left] = results_[static_cast<size_t>(lowest) >> kPlaceBits];
    orders[right] = kNoOrder;
    next[left] = static_cast<uint8_t>(after);
    previous[after] = static_cast<uint8_t>(left);
    orders[left] = after < count ? order(ranks_.find(symbols[left], symbols[after]), left) : kNoOrder;
    if (left == 0) continue;
    const size_t before = previous[left];
    orders[before] = order(ranks_.find(symbols[before], symbols[left]), before);
  }
  size_t left_over = 0;
  for (size_t i = 0; i < count; i = next[i]) {
    symbols[left_over] = symbols[i];
    scratch.ends_[left_over++] = scratch.ends_[next[i] - 1u];
  }
  return left_over;
}

size_t Bpe::merge_many(size_t count, Scratch& scratch) const {
  constexpr uint32_t kNoRank = MergeTable::kNoRank;
  auto& symbols = scratch.symbols_;
  auto& queue = scratch.queue_;
  const auto candidate = [](uint32_t rank, uint32_t left) { return uint64_t{rank} << 32 | left; };
  symbols.clear();
  queue.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const uint32_t rank = scratch.ranks_[i];
    symbols.push_back({scratch.tokens_[i], i == 0 ? kNone : i - 1, last ? kNone : i + 1, rank});
    if (rank != kNoRank) queue.push_back(candidate(rank, i));
  }
  const auto update = [&](uint32_t left) {
    Scratch::Symbol& symbol = symbols[left];
    symbol.rank = symbol.next == kNone ? kNoRank : ranks_.find(symbol.id, symbols[symbol.next].id);
    if (symbol.rank == kNoRank) return;
    queue.push_back(candidate(symbol.rank, left));
    std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };

  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t lowest = queue.back();
    queue.pop_back();
    const auto at = static_cast<uint32_t>(lowest);
    Scratch::Symbol& left = symbols[at];
    if (candidate(left.rank, at) != lowest) continue;  // one of the two symbols has been merged since
    Scratch::Symbol& right = symbols[left.next];
    left.id = results_[left.rank];
    left.next = right.next;
    right.rank = kNoRank;
    if (left.next != kNone) symbols[left.next].previous = at;
    update(at);
    if (left.previous != kNone) update(left.previous);
  }
  size_t left_over = 0;
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) {
    const size_t after = symbols[i].next == kNone ? count : symbols[i].next;
    scratch.tokens_[left_over] = symbols[i].id;
    scratch.ends_[left_over++] = scratch.ends_[after - 1];
  }
  return left_over;
}

std::optional<int64_t> Bpe::token_id(std::string_view token_text) const {
  const uint32_t id = find_token(token_text);
  return id == kNoId ? std::nullopt : std::optional<int64_t>(id);
}

}  // namespace asterism::data
