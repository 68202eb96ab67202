#include "asterism/data/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

Bpe read(const nlohmann::json& model) {
  TokenizerFile file = read_tokenizer_file(nlohmann::json{{"model", model}}.dump(), "file");
  return Bpe(JsonPart(file.rest.at("model"), "model"), std::move(file.tables));
}

std::vector<int64_t> ids_of(const Bpe& bpe, std::string_view text) {
  Bpe::Scratch scratch;
  std::vector<int64_t> ids, again;
  std::string bytes;
  bpe.encode(text, scratch, [&](int64_t id, size_t length) {
    ids.push_back(id);
    bytes += bpe.token_bytes(id);
    EXPECT_EQ(length, bpe.token_bytes(id).size());
  });
  bpe.encode(text, scratch, [&](int64_t id, size_t length) {  // short pieces are remembered by now
    again.push_back(id);
    EXPECT_EQ(length, bpe.token_bytes(id).size());
  });
  EXPECT_EQ(ids, again);
  EXPECT_EQ(bytes, text);
  return ids;
}

using Merges = std::vector<std::pair<std::string, std::string>>;  // of bytes

std::string in_byte_alphabet(const std::string& bytes) {
  std::string spelled;
  for (const char byte : bytes) spelled += byte_character(static_cast<unsigned char>(byte));
  return spelled;
}

// The definition, word for word: again and again the pair of lowest rank, leftmost first.
std::vector<int64_t> merge_by_definition(const Merges& merges, const Bpe& bpe, const std::string& text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.push_back(std::string(1, c));
  while (true) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), std::pair(symbols[i], symbols[i + 1]));
      const auto rank = static_cast<size_t>(found - merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best = i;
      }
    }
    if (best_rank == merges.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<int64_t> ids;
  for (const std::string& symbol : symbols) ids.push_back(*bpe.token_id(in_byte_alphabet(symbol)));
  return ids;
}

// `more` merges of random neighbours behind these, of these tokens to begin with.
Merges random_merges(std::vector<std::string> known, Merges merges, size_t more, std::mt19937& random) {
  for (const auto& [left, right] : merges) known.push_back(left + right);
  for (const size_t count = merges.size() + more; merges.size() < count;) {
    const Merges::value_type merge = {known[random() % known.size()], known[random() % known.size()]};
    const std::string joined = merge.first + merge.second;
    if (std::find(known.begin(), known.end(), joined) != known.end()) continue;
    known.push_back(joined);
    merges.push_back(merge);
  }
  return merges;
}

TEST(Bpe, MergesLowestRankFirstAndThenLeftmost) {
  const Bpe bpe = read(small_tokenizer({{"b", "c"}, {"a", "b"}, {"a", "a"}}).at("model"));
  EXPECT_EQ(ids_of(bpe, "abc"), (std::vector<int64_t>{'a', 256}));  // "bc" before "ab"
  EXPECT_EQ(ids_of(bpe, "aaa"), (std::vector<int64_t>{258, 'a'}));
  EXPECT_EQ(ids_of(bpe, ""), std::vector<int64_t>{});
}

TEST(Bpe, TakesNoWholeWordShortcut) {
  // "abc" is a token, but its parts "ab" + "c" are never neighbours because "bc" merges first.
  const Bpe bpe = read(small_tokenizer({{"b", "c"}, {"a", "b"}, {"ab", "c"}}).at("model"));
  EXPECT_EQ(ids_of(bpe, "abc"), (std::vector<int64_t>{'a', 256}));
}

TEST(Bpe, EqualsTheDefinitionOnRandomMerges) {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const auto merges = random_merges({"a", "b", "c"}, {}, 30, random);
    const Bpe bpe = read(small_tokenizer(merges).at("model"));
    for (int i = 0; i < 20; ++i) {
      std::string text;
      for (size_t length = random() % 120; text.size() < length;) text.push_back("abc"[random() % 3]);
      EXPECT_EQ(ids_of(bpe, text), merge_by_definition(merges, bpe, text)) << text;
    }
  }
}

// Merging starts from whole characters where that changes nothing (character_tokens.h). Here it often would: merges
// cross the borders of characters, and some come before those that make their parts.
TEST(Bpe, EqualsTheDefinitionOnRandomMergesOfPartsOfCharacters) {
  const std::vector<std::string> characters = {"a", "é", "è", "ĩ", "中", "丮", "串", "😀", "😮"};
  const Merges usual = {{"\xC3", "\xA9"}, {"\xE4", "\xB8"}, {"\xE4\xB8", "\xAD"}, {"\xC3", "\xA8"}, {"中", "é"}};
  std::vector<std::string> bytes;
  for (const char byte : std::string("a\xC3\xA9\xA8\xE4\xB8\xAD\xAE\xB2\xF0\x9F\x98\x80")) bytes.emplace_back(1, byte);
  std::mt19937 random(12);
  for (int round = 0; round < 400; ++round) {
    Merges merges = random_merges(bytes, round % 2 == 0 ? usual : Merges{}, 5 + random() % 40, random);
    if (round % 3 == 0) std::shuffle(merges.begin(), merges.end(), random);
    Merges spelled;
    for (const auto& [left, right] : merges) spelled.emplace_back(in_byte_alphabet(left), in_byte_alphabet(right));
    const Bpe bpe = read(small_tokenizer(spelled).at("model"));
    for (int i = 0; i < 30; ++i) {
      std::string text;
      for (size_t length = random() % 60; text.size() < length;) text += characters[random() % characters.size()];
      ASSERT_EQ(ids_of(bpe, text), merge_by_definition(merges, bpe, text)) << text << " in round " << round;
    }
  }
}

TEST(Bpe, ReadsMergesAsStringsAndAsPairs) {
  nlohmann::json model = small_tokenizer({{"a", "b"}, {"Ġ", "ab"}}).at("model");
  model["merges"] = nlohmann::json::parse(R"([["a", "b"], ["Ġ", "ab"]])");
  const Bpe bpe = read(model);
  EXPECT_EQ(ids_of(bpe, " ab"), std::vector<int64_t>{257});
  EXPECT_EQ(bpe.token_bytes(257), " ab");
  EXPECT_EQ(bpe.token_text(257), "Ġab");
}

TEST(Bpe, IgnoreMergesTakesAPieceThatIsAToken) {
  nlohmann::json model = small_tokenizer({{"b", "c"}, {"a", "b"}, {"ab", "c"}}).at("model");
  model["ignore_merges"] = true;
  EXPECT_EQ(ids_of(read(model), "abc"), std::vector<int64_t>{258});
  EXPECT_EQ(ids_of(read(model), "abcx"), (std::vector<int64_t>{'a', 256, 'x'}));
}

TEST(Bpe, ContentHashDependsOnTokensIdsAndMerges) {
  const auto hash_of = [](const auto& change) {
    nlohmann::json model = small_tokenizer({{"a", "b"}, {"b", "c"}}).at("model");
    change(model);
    return read(model).content_hash();
  };
  const std::vector<uint64_t> hashes = {hash_of([](auto& m) {}), hash_of([](auto& m) { m["merges"].erase(1); }),
                                        hash_of([](auto& m) { std::swap(m["merges"][0], m["merges"][1]); }),
                                        hash_of([](auto& m) { std::swap(m["vocab"]["ab"], m["vocab"]["bc"]); }),
                                        hash_of([](auto& m) { m["vocab"]["xyz"] = 300; })};
  EXPECT_EQ(std::set<uint64_t>(hashes.begin(), hashes.end()).size(), hashes.size());
}

TEST(Bpe, NamesTheDamageInAModel) {
  using Change = std::function<void(nlohmann::json&)>;
  const std::vector<std::pair<std::string, Change>> cases = {
      {"model: member \"type\" is missing", [](auto& m) { m.erase("type"); }},
      {"model: type \"WordPiece\" is not supported", [](auto& m) { m["type"] = "WordPiece"; }},
      {"model: member \"vocab\" is missing", [](auto& m) { m.erase("vocab"); }},
      {"model: member \"merges\" is missing", [](auto& m) { m.erase("merges"); }},
      {"model: dropout is set", [](auto& m) { m["dropout"] = 0.1; }},
      {"model: unk_token is set", [](auto& m) { m["unk_token"] = "<unk>"; }},
      {"model: end_of_word_suffix is set", [](auto& m) { m["end_of_word_suffix"] = "</w>"; }},
      {"model: byte_fallback is true", [](auto& m) { m["byte_fallback"] = true; }},
      {"model.ignore_merges: expected true or false", [](auto& m) { m["ignore_merges"] = 1; }},
      {"id 97 belongs to both", [](auto& m) { m["vocab"]["ab"] = 97; }},
      {"token \"ab\" has id -1", [](auto& m) { m["vocab"]["ab"] = -1; }},
      {"token \"ab\" has id 99999999999", [](auto& m) { m["vocab"]["ab"] = 99999999999; }},
      {"token \"ab\" has id \"1\"", [](auto& m) { m["vocab"]["ab"] = "1"; }},
      {"model.vocab: has no token for byte 32", [](auto& m) { m["vocab"].erase("Ġ"); }},
      {"model.vocab: is empty", [](auto& m) { m["vocab"] = nlohmann::json::object(); }},
      {"model.merges[1]: \"zz\" is not in the vocabulary", [](auto& m) { m["merges"].push_back("zz a"); }},
      {"model.merges[1]: \"ba\" is not in the vocabulary", [](auto& m) { m["merges"].push_back("b a"); }},
      {"model.merges[1]: repeats merge 0", [](auto& m) { m["merges"].push_back("a b"); }},
      {"model.merges[1]: expected \"left right\"", [](auto& m) { m["merges"].push_back("a b c"); }},
      {"model.merges[1]: expected \"left right\"", [](auto& m) { m["merges"].push_back(7); }}};
  for (const auto& [expected, change] : cases) {
    nlohmann::json model = small_tokenizer({{"a", "b"}}).at("model");
    change(model);
    const std::string message = message_of([&] { read(model); });
    EXPECT_NE(message.find(expected), std::string::npos) << expected << " in: " << message;
  }
}

TEST(Bpe, MayLackBytesThatNoTextHas) {
  nlohmann::json model = small_tokenizer({}).at("model");
  model["vocab"].erase(byte_character(0xC0));
  model["vocab"].erase(byte_character(0xFF));
  EXPECT_EQ(ids_of(read(model), "a"), std::vector<int64_t>{'a'});
}

}  // namespace
}  // namespace asterism::data
