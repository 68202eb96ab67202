#include "asterism/data/bpe.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <utility>

#include "asterism/core/rng.h"
#include "asterism/data/byte_alphabet.h"

namespace asterism::data {

namespace {

constexpr uint32_t kNone = ~uint32_t{0};
constexpr uint32_t kGone = ~uint32_t{0};
constexpr int64_t kMaxId = (1 << 24) - 1;  // far above any vocabulary; keeps a bad id from reserving gigabytes

// C0, C1 and F5 to FF occur in no UTF-8 text, so a vocabulary may lack them.
bool occurs_in_utf8(int byte) {
  return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4);
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
  for (const char* name : {"byte_fallback", "ignore_merges"}) {
    if (model.flag(name, false)) model.fail(name, " is true; only false is supported");
  }
}

struct MergeParts {
  std::string_view left, right;
};

MergeParts parts_of(const JsonPart& merges, size_t rank) {
  const nlohmann::json& entry = merges.value()[rank];
  if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
    return {entry[0].get_ref<const std::string&>(), entry[1].get_ref<const std::string&>()};
  }
  if (entry.is_string()) {
    const std::string_view both = entry.get_ref<const std::string&>();
    const size_t space = both.find(' ');
    if (space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos) {
      return {both.substr(0, space), both.substr(space + 1)};
    }
  }
  merges.element(rank).fail("expected \"left right\" or [\"left\", \"right\"], found ", entry.dump());
}

}  // namespace

Bpe::Bpe(const JsonPart& model) {
  check_options(model);
  const JsonPart vocab = model.at("vocab");
  read_vocabulary(vocab);
  find_byte_tokens(vocab);
  read_merges(model.at("merges"));
}

void Bpe::read_vocabulary(const JsonPart& vocab) {
  if (!vocab.value().is_object()) vocab.fail("expected an object of token -> id, found ", vocab.value().type_name());
  if (vocab.value().empty()) vocab.fail("is empty");
  int64_t largest = 0;
  for (const auto& [token, id] : vocab.value().items()) {
    const bool good = id.is_number_integer() && id >= 0 && id <= kMaxId;
    if (!good) vocab.fail("token \"", token, "\" has id ", id.dump(), "; expected an integer from 0 to ", kMaxId);
    if (token.empty()) vocab.fail("the empty text has id ", id.dump(), "; a token needs at least one character");
    largest = std::max(largest, id.get<int64_t>());
  }

  texts_.resize(largest + 1);
  bytes_.resize(largest + 1);
  for (const auto& [token, value] : vocab.value().items()) {
    const auto id = value.get<uint32_t>();
    if (!texts_[id].empty()) vocab.fail("id ", id, " belongs to both \"", texts_[id], "\" and \"", token, "\"");
    texts_[id] = token;
    bytes_[id] = bytes_of_characters(token).value_or(token);  // reserved tokens may be spelled in other characters
  }
  index_.reserve(vocab.value().size());
  for (uint32_t id = 0; id < texts_.size(); ++id) {
    if (!texts_[id].empty()) index_.emplace(texts_[id], id);
  }
}

void Bpe::find_byte_tokens(const JsonPart& vocab) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string& character = byte_character(static_cast<unsigned char>(byte));
    const auto token = index_.find(character);
    if (token != index_.end()) {
      byte_tokens_[byte] = token->second;
    } else if (occurs_in_utf8(byte)) {
      vocab.fail("has no token for byte ", byte, " (\"", character, "\"), so some texts could not be written");
    }
  }
}

void Bpe::read_merges(const JsonPart& merges) {
  const size_t count = merges.array_size();
  merges_.resize(std::bit_ceil(2 * count + 1));
  std::string joined;
  for (size_t rank = 0; rank < count; ++rank) {
    const auto [left, right] = parts_of(merges, rank);
    joined.assign(left).append(right);
    const auto id_of = [&](std::string_view token) {
      const auto found = index_.find(token);
      if (found == index_.end()) merges.element(rank).fail("\"", token, "\" is not in the vocabulary");
      return found->second;
    };
    const Merge merge{pair_of(id_of(left), id_of(right)), static_cast<uint32_t>(rank), id_of(joined)};
    Merge& slot = merges_[slot_of(merge.pair)];
    if (slot.pair == merge.pair) merges.element(rank).fail("repeats merge ", slot.rank);
    slot = merge;
  }
}

// The slot that holds `pair`, or the free one where it belongs.
size_t Bpe::slot_of(uint64_t pair) const {
  const size_t mask = merges_.size() - 1;
  size_t slot = mix_bits(pair) & mask;
  while (merges_[slot].pair != pair && merges_[slot].pair != kNoPair) slot = (slot + 1) & mask;
  return slot;
}

const Bpe::Merge* Bpe::find_merge(uint32_t left, uint32_t right) const {
  const Merge& merge = merges_[slot_of(pair_of(left, right))];
  return merge.pair == kNoPair ? nullptr : &merge;
}

// Queues the merge of symbol `left` with its right neighbour, if there is one.
void Bpe::offer(Scratch& scratch, uint32_t left) const {
  const Scratch::Symbol& symbol = scratch.symbols_[left];
  if (symbol.next == kNone) return;
  const Merge* merge = find_merge(symbol.id, scratch.symbols_[symbol.next].id);
  if (merge != nullptr) scratch.queue_.push_back({merge->rank, left, merge->pair, merge->result});
}

void Bpe::merge_all(Scratch& scratch) const {
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  auto& symbols = scratch.symbols_;
  auto& queue = scratch.queue_;
  const auto offer_sorted = [&](uint32_t left) {
    const size_t before = queue.size();
    offer(scratch, left);
    if (queue.size() != before) std::push_heap(queue.begin(), queue.end(), later);
  };

  std::make_heap(queue.begin(), queue.end(), later);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const Scratch::Candidate best = queue.back();
    queue.pop_back();
    Scratch::Symbol& left = symbols[best.left];
    // Outdated when either symbol has been merged since; a symbol that is gone has an id that no pair contains.
    if (left.next == kNone || pair_of(left.id, symbols[left.next].id) != best.pair) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = best.result;
    left.end = right.end;
    left.next = right.next;
    right.id = kGone;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    offer_sorted(best.left);
    if (left.previous != kNone) offer_sorted(left.previous);
  }
}

void Bpe::encode(std::string_view bytes, Scratch& scratch, std::vector<int64_t>& ids, std::vector<size_t>& ends) const {
  const auto count = static_cast<uint32_t>(bytes.size());
  scratch.symbols_.clear();
  scratch.queue_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t token = byte_tokens_[static_cast<unsigned char>(bytes[i])];
    scratch.symbols_.push_back({token, i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1, i + 1});
  }
  for (uint32_t i = 0; i + 1 < count; ++i) offer(scratch, i);
  merge_all(scratch);
  for (uint32_t i = 0; i < count; i = scratch.symbols_[i].end) {  // the symbol after one starts where that one ends
    ids.push_back(scratch.symbols_[i].id);
    ends.push_back(scratch.symbols_[i].end);
  }
}

std::optional<int64_t> Bpe::token_id(std::string_view token_text) const {
  const auto found = index_.find(token_text);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

}  // namespace asterism::data
