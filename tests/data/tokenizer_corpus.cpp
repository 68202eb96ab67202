#include "tests/data/tokenizer_corpus.h"

#include <array>
#include <functional>

#include "asterism/core/rng.h"
#include "asterism/data/utf8.h"

namespace asterism::data {
namespace {

constexpr size_t kParts = 512;
constexpr size_t kPartSize = 4096;
constexpr int64_t kModelTokens = 128000;

/// Numbers of one part, one after the other.
class Draws {
 public:
  explicit Draws(uint64_t part) : stream_(0, "tokenizer_corpus", {part}) {}
  uint64_t below(uint64_t bound) { return stream_.below(bound, next_++); }
  template <typename List>
  const auto& one_of(const List& list) {
    return list[below(list.size())];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

std::string repeated(std::string_view unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += unit;
  return text;
}

char32_t character_in(Draws& draws, char32_t first, char32_t last) {
  const auto c = static_cast<char32_t>(first + draws.below(last - first + 1));
  return c >= 0xD800 && c <= 0xDFFF ? U'x' : c;
}

// One token, low ids (frequent ones) more often; tokens that are a part of a character give U+FFFD.
std::string word(Draws& draws, const Tokenizer& tokenizer) {
  static constexpr std::array<int64_t, 4> kLimits = {1000, 10000, 50000, kModelTokens};
  const auto id = static_cast<int64_t>(3 + draws.below(static_cast<uint64_t>(draws.one_of(kLimits) - 3)));
  return tokenizer.decode({&id, 1});
}

std::string any_character(Draws& draws, const Tokenizer&) {
  std::string text;
  // Up to the last block that Unicode 14 knows well: newer versions move characters between groups.
  append_utf8(text, draws.below(4) == 0 ? character_in(draws, 0x10000, 0x1FAFF) : character_in(draws, 0, 0xFFFD));
  return text;
}

// Strings over one block of 256 characters with spaces between.
std::string block(Draws& draws, const Tokenizer&) {
  const char32_t first = 256 * static_cast<char32_t>(draws.below(0x1FB));
  std::string text;
  for (size_t count = 200; count > 0; --count) {
    append_utf8(text, draws.below(6) == 0 ? U' ' : character_in(draws, first, first + 255));
  }
  return text;
}

std::string run(Draws& draws, const Tokenizer&) {
  static constexpr std::array<std::string_view, 20> kUnits = {"a",      " ",    "\n",     "=",    "0",   "中", "の",
                                                              "\u0301", "\r\n", " \n",    "ab",   "<｜", "é",  "😀",
                                                              "\t",     "-",    "\u3000", "\x01", "._",  "ก"};
  return repeated(draws.one_of(kUnits), 1 + draws.below(300)) + std::string(draws.below(2), 'x');
}

std::string notable(Draws& draws, const Tokenizer&) {
  static constexpr std::array<std::string_view, 34> kParts = {
      " ",  "  ", "\n",          "\r\n",   "\t",     "\u00A0",   "\u3000", "a", "Z",  "é",      "中", "の",
      "・", "龥", "龦",          "\u3099", "\u0301", "9",        "½",      "٣", "!",  "'s",     "_",  "，",
      "€",  "😀",  "👩‍👧", "\u200D", "\x1C",   "#include", "(x)",    "ß", "กำ", "العربية"};
  return std::string(draws.one_of(kParts));
}

std::string markup(Draws& draws, const Tokenizer& tokenizer) {
  static constexpr std::array<std::string_view, 12> kTokens = {"<｜begin▁of▁sentence｜>",
                                                               "<｜end▁of▁sentence｜>",
                                                               "<｜User｜>",
                                                               "<｜Assistant｜>",
                                                               "<think>",
                                                               "</think>",
                                                               "｜DSML｜",
                                                               "<｜User｜",  // no token
                                                               "<|User|>",
                                                               "<｜tool▁calls▁begin｜>",
                                                               "<｜fim▁hole｜>",
                                                               "<｜▁pad▁｜>"};
  const std::string_view token = draws.one_of(kTokens);
  if (draws.below(4) != 0) return std::string(token) + (draws.below(2) == 0 ? " " : word(draws, tokenizer));
  // Cut at a byte; what is left of a character becomes U+FFFD.
  return replace_invalid_utf8(token.substr(0, draws.below(token.size())));
}

}  // namespace

std::vector<std::string> tokenizer_corpus(const Tokenizer& tokenizer) {
  using Source = std::string (*)(Draws&, const Tokenizer&);
  static constexpr std::array<Source, 8> kSources = {word, word, word, notable, any_character, block, run, markup};
  std::vector<std::string> parts;
  for (size_t part = 0; part < kParts; ++part) {
    Draws draws(part);
    std::string text;
    // Seven parts of one kind each, then a part of all kinds.
    const size_t kind = part % (kSources.size() + 1);
    while (text.size() < kPartSize) {
      text += (kind < kSources.size() ? kSources[kind] : draws.one_of(kSources))(draws, tokenizer);
    }
    parts.push_back(std::move(text));
  }
  return parts;
}

}  // namespace asterism::data
