#include "asterism/data/added_tokens.h"

#include <algorithm>
#include <cstring>

#include "asterism/data/unicode_class.h"
#include "asterism/data/utf8.h"

namespace asterism::data {

namespace {

// The character that ends at `end` > begin.
Utf8Sequence read_utf8_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return read_utf8(text, at);
}

size_t start_of_white_space_before(std::string_view text, size_t end, size_t begin) {
  while (end > begin) {
    const Utf8Sequence character = read_utf8_before(text, end);
    if (!is_white_space(character.value)) break;
    end -= character.length;
  }
  return end;
}

size_t end_of_white_space_after(std::string_view text, size_t begin, size_t end) {
  while (begin < end) {
    const Utf8Sequence character = read_utf8(text, begin);
    if (!is_white_space(character.value)) break;
    begin += character.length;
  }
  return begin;
}

uint64_t eight_times(char byte) {
  return uint64_t{static_cast<unsigned char>(byte)} * 0x0101010101010101ull;
}

bool has_zero_byte(uint64_t word) {
  return ((word - 0x0101010101010101ull) & ~word & 0x8080808080808080ull) != 0;
}

AddedToken read_token(const JsonPart& entry) {
  AddedToken token;
  token.id = entry.at("id").as_integer();
  token.content = entry.at("content").as_string();
  token.special = entry.flag("special", false);
  token.normalized = entry.flag("normalized", !token.special);
  token.lstrip = entry.flag("lstrip", false);
  token.rstrip = entry.flag("rstrip", false);
  token.single_word = entry.flag("single_word", false);
  if (token.id < 0) entry.fail("id ", token.id, " is negative");
  if (token.content.empty()) entry.fail("content is empty");
  return token;
}

}  // namespace

AddedTokens::Trie::Trie() : nodes_(1) {}

const AddedTokens::Trie::Edge* AddedTokens::Trie::edge(uint32_t node, char byte) const {
  const auto& edges = nodes_[node].edges;
  const auto found = std::find_if(edges.begin(), edges.end(),
                                  [&](const Edge& e) { return e.byte == static_cast<unsigned char>(byte); });
  return found == edges.end() ? nullptr : &*found;
}

void AddedTokens::Trie::insert(std::string_view content, uint32_t token) {
  bool& starts = starts_[static_cast<unsigned char>(content[0])];
  if (!starts) start_bytes_.push_back(content[0]);
  starts = true;
  uint32_t node = 0;
  for (const char byte : content) {
    if (const Edge* known = edge(node, byte)) {
      node = known->node;
      continue;
    }
    const auto child = static_cast<uint32_t>(nodes_.size());
    nodes_[node].edges.push_back({static_cast<unsigned char>(byte), child});
    nodes_.emplace_back();
    node = child;
  }
  nodes_[node].token = token;
}

uint32_t AddedTokens::Trie::longest(std::string_view text, size_t at, size_t limit) const {
  uint32_t best = kNoToken, node = 0;
  for (; at < limit; ++at) {
    const Edge* next = edge(node, text[at]);
    if (next == nullptr) break;
    node = next->node;
    if (nodes_[node].token != kNoToken) best = nodes_[node].token;
  }
  return best;
}

size_t AddedTokens::Trie::next_start(std::string_view text, size_t at, size_t limit) const {
  if (start_bytes_.empty()) return limit;
  if (start_bytes_.size() <= 2) {  // eight bytes at a time
    const uint64_t first = eight_times(start_bytes_.front()), second = eight_times(start_bytes_.back());
    for (uint64_t word; at + sizeof word <= limit; at += sizeof word) {
      std::memcpy(&word, text.data() + at, sizeof word);
      if (has_zero_byte(word ^ first) || has_zero_byte(word ^ second)) break;
    }
  }
  while (at < limit && !starts_[static_cast<unsigned char>(text[at])]) ++at;
  return at;
}

AddedTokens::AddedTokens(const JsonPart& list) : word_(Regex::word_character()) {
  const size_t count = list.array_size();
  tokens_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const JsonPart entry = list.element(i);
    const AddedToken& token = tokens_.emplace_back(read_token(entry));
    const auto index = static_cast<uint32_t>(i);
    if (!by_id_.emplace(token.id, index).second) entry.fail("id ", token.id, " occurs twice among the added tokens");
    if (!by_content_.emplace(token.content, index).second) {
      entry.fail("content \"", token.content, "\" occurs twice among the added tokens");
    }
    (token.normalized ? second_pass_ : first_pass_).insert(token.content, index);
  }
}

std::vector<Stretch> AddedTokens::split(std::string_view text, std::span<const ByteRange> as_text) const {
  std::vector<Stretch> first, both;
  scan(first_pass_, text, {0, text.size()}, as_text, first);
  for (const Stretch& stretch : first) {
    if (stretch.token != nullptr) {
      both.push_back(stretch);
      continue;
    }
    const auto touching =
        std::find_if(as_text.begin(), as_text.end(), [&](const ByteRange& r) { return r.end > stretch.range.begin; });
    as_text = as_text.subspan(touching - as_text.begin());  // stretches ascend: earlier ranges are done with
    scan(second_pass_, text, stretch.range, as_text, both);
  }
  return both;
}

void AddedTokens::scan(const Trie& trie, std::string_view text, ByteRange part, std::span<const ByteRange> as_text,
                       std::vector<Stretch>& out) const {
  size_t pending = part.begin;  // start of the text not yet written to `out`
  size_t free = part.begin;     // end of the last range of `as_text`
  size_t at = part.begin;
  while (at < part.end) {
    while (!as_text.empty() && as_text.front().end <= at) as_text = as_text.subspan(1);
    const size_t limit = as_text.empty() ? part.end : std::min(part.end, std::max(at, as_text.front().begin));
    at = trie.next_start(text, at, limit);
    if (at == limit) {
      if (as_text.empty()) break;
      at = free = std::min(part.end, as_text.front().end);
      continue;
    }
    const uint32_t found = trie.longest(text, at, limit);
    if (found == kNoToken) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found];
    ByteRange match{at, at + token.content.size()};
    at = match.end;  // not after the white space that it takes along: that may begin the next token
    if (token.single_word && !stands_alone(text, match, part)) continue;
    if (token.lstrip) match.begin = start_of_white_space_before(text, match.begin, std::max(pending, free));
    if (token.rstrip) match.end = end_of_white_space_after(text, std::max(pending, match.end), limit);
    match.begin = std::max(match.begin, pending);
    if (match.end <= match.begin) continue;  // all of it was taken along by the token before
    if (pending < match.begin) out.push_back({{pending, match.begin}, nullptr});
    out.push_back({match, &token});
    pending = match.end;
  }
  if (pending < part.end) out.push_back({{pending, part.end}, nullptr});
}

bool AddedTokens::stands_alone(std::string_view text, ByteRange match, ByteRange part) const {
  if (match.begin > part.begin && is_word(read_utf8_before(text, match.begin).value)) return false;
  return match.end == part.end || !is_word(read_utf8(text, match.end).value);
}

bool AddedTokens::is_word(char32_t character) const {
  std::string one;
  append_utf8(one, character);
  RegexScratch scratch;
  return word_.find(one, 0, scratch).has_value();
}

const AddedToken* AddedTokens::find(int64_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

}  // namespace asterism::data
