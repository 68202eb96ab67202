#include "asterism/data/character_tokens.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

namespace asterism::data {
namespace {

/// Of a vocabulary of the 256 bytes and one token per merge, in their order.
CharacterTokens characters_of(const std::vector<std::pair<std::string, std::string>>& merges) {
  std::vector<std::string> tokens;
  std::map<std::string, uint32_t> ids;
  std::array<uint32_t, 256> byte_tokens{};
  const auto add = [&](const std::string& token) {
    ids[token] = static_cast<uint32_t>(tokens.size());
    tokens.push_back(token);
  };
  for (int byte = 0; byte < 256; ++byte) {
    byte_tokens[byte] = static_cast<uint32_t>(byte);
    add(std::string(1, static_cast<char>(byte)));
  }
  for (const auto& [left, right] : merges) add(left + right);
  MergeTable ranks(merges.size());
  std::vector<TokenMerge> by_rank;
  for (const auto& [left, right] : merges) {
    ranks.insert(ids.at(left), ids.at(right), static_cast<uint32_t>(by_rank.size()));
    by_rank.push_back({ids.at(left), ids.at(right), ids.at(left + right)});
  }
  return CharacterTokens(by_rank, ranks, tokens, byte_tokens);
}

constexpr char32_t kEAcute = U'é', kMiddle = U'中';

TEST(CharacterTokens, HoldsCharactersOfTwoToFourBytes) {
  const CharacterTokens characters = characters_of({{"\xC3", "\xA9"},
                                                    {"\xE4", "\xB8"},
                                                    {"\xE4\xB8", "\xAD"},
                                                    {"\x98", "\x80"},
                                                    {"\xF0", "\x9F"},
                                                    {"\xF0\x9F", "\x98\x80"}});
  EXPECT_EQ(characters.size(), 3u);
  EXPECT_EQ(characters.find(kEAcute), 256u);
  EXPECT_EQ(characters.find(kMiddle), 258u);
  EXPECT_EQ(characters.find(U'😀'), 261u);
  for (const char32_t other : {U'a', U'è', U'丮', U'\u0000', U'\U0010FFFF'}) {
    EXPECT_EQ(characters.find(other), CharacterTokens::kNone) << static_cast<uint32_t>(other);
  }
}

TEST(CharacterTokens, ACharacterThatStaysSeveralTokensIsNone) {
  // "中" is a token, but E4 B8 is merged first and E4 B8 + AD is no merge.
  const CharacterTokens characters = characters_of({{"\xE4", "\xB8"}, {"\xB8", "\xAD"}, {"\xE4", "\xB8\xAD"}});
  EXPECT_EQ(characters.find(kMiddle), CharacterTokens::kNone);
  EXPECT_EQ(CharacterTokens().size(), 0u);
}

TEST(CharacterTokens, APartThatIsTakenByWhatStandsBesideItFirstKeepsACharacterOut) {
  const std::pair<std::string, std::string> whole{"\xC3", "\xA9"};
  for (const auto& beside : std::vector<std::pair<std::string, std::string>>{{"\xA9", "x"}, {"x", "\xC3"}}) {
    EXPECT_EQ(characters_of({beside, whole}).find(kEAcute), CharacterTokens::kNone);
    EXPECT_EQ(characters_of({whole, beside}).find(kEAcute), 256u);
  }
  // A part of one character and a part of the next.
  EXPECT_EQ(characters_of({{"\xA9", "\xC3"}, whole}).size(), 0u);
  // In the middle of a character's own merges.
  const std::pair<std::string, std::string> half{"\xE4", "\xB8"}, middle{"\xE4\xB8", "\xAD"};
  for (const auto& beside : std::vector<std::pair<std::string, std::string>>{{"x", "\xE4"}, {"\xAD", "x"}}) {
    EXPECT_EQ(characters_of({half, beside, middle}).find(kMiddle), CharacterTokens::kNone);
    EXPECT_EQ(characters_of({half, middle, beside}).find(kMiddle), 257u);
  }
  EXPECT_EQ(characters_of({half, {"x", "\xE4\xB8"}, middle}).find(kMiddle), CharacterTokens::kNone);
}

TEST(CharacterTokens, PartsOfOtherCharactersDoNotMatter) {
  const std::pair<std::string, std::string> whole{"\xC3", "\xA9"};
  for (const auto& beside : std::vector<std::pair<std::string, std::string>>{{"\xA8", "x"}, {"x", "\xC4"}}) {
    EXPECT_EQ(characters_of({beside, whole}).find(kEAcute), 257u);
  }
}

TEST(CharacterTokens, AMergeOfTheWholeBeforeItComesAboutKeepsACharacterOut) {
  // "ébc": b + c before é is there, although é + b has the lowest rank.
  const std::pair<std::string, std::string> whole{"\xC3", "\xA9"}, with_b{"\xC3\xA9", "b"}, with_a{"a", "\xC3\xA9"};
  EXPECT_EQ(characters_of({with_b, {"b", "c"}, whole}).find(kEAcute), CharacterTokens::kNone);
  EXPECT_EQ(characters_of({with_a, whole}).find(kEAcute), CharacterTokens::kNone);
  EXPECT_EQ(characters_of({whole, with_b, with_a}).find(kEAcute), 256u);
}

}  // namespace
}  // namespace asterism::data
