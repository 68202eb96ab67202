#include "tests/data/tokenizer_corpus.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

// 64 bits, FNV-1a.
template <typename Values>
uint64_t hash_of(const Values& values) {
  uint64_t state = 0xCBF29CE484222325ull;
  for (const auto value : values) {
    state = (state ^ static_cast<std::make_unsigned_t<std::decay_t<decltype(value)>>>(value)) * 0x100000001B3ull;
  }
  return state;
}

TEST(TokenizerCorpus, HasTheIdsOfTheReferenceAndComesBack) {
  const auto folder = v4_tokenizer_folder();
  if (!folder) GTEST_SKIP() << "no DeepSeek-V4 tokenizer.json: set ASTERISM_TOKENIZER or put it in build/tokenizer";
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  const std::vector<std::string> texts = tokenizer_corpus(tokenizer);
  std::ifstream hashes(std::string(ASTERISM_SOURCE_DIR) + "/tests/data/tokenizer_corpus.txt");
  ASSERT_TRUE(hashes.good());
  hashes >> std::hex;
  size_t bytes = 0;
  for (size_t part = 0; part < texts.size(); ++part) {
    uint64_t text_hash = 0, ids_hash = 0;
    ASSERT_TRUE(hashes >> text_hash >> ids_hash) << "part " << part;
    ASSERT_EQ(hash_of(texts[part]), text_hash)
        << "part " << part << " is another text than the one whose ids were stored: renew them with "
        << "tools/compare-tokenizer --write-hashes";
    const std::vector<int64_t> ids = tokenizer.encode(texts[part]);
    EXPECT_EQ(hash_of(ids), ids_hash) << "part " << part << " has other ids than the package `tokenizers` gives";
    EXPECT_EQ(tokenizer.decode(ids), texts[part]) << "part " << part;
    bytes += texts[part].size();
  }
  EXPECT_GT(bytes, size_t{2} << 20);
}

// Were the time of any step quadratic in the length, this would take hours.
TEST(TokenizerCorpus, LongMonotonousTextsComeBack) {
  const auto folder = v4_tokenizer_folder();
  if (!folder) GTEST_SKIP() << "no DeepSeek-V4 tokenizer.json: set ASTERISM_TOKENIZER or put it in build/tokenizer";
  const Tokenizer tokenizer = Tokenizer::load(*folder);
  const size_t size = std::getenv("ASTERISM_LONG") ? 10000000 : 1000000;
  for (const char* unit : {"a",  "ab",     "=",          " ",      "\n",      "\r\n", " \n", "0",
                           "中", "中文",   "の",         "\u0301", "\x01",    "<｜",  "<",   "<｜place▁holder▁no",
                           "😀",  "\u200B", "xyzzyplugh", ".",      "a\u0301", " a",   "e"}) {
    std::string text;
    while (text.size() < size) text += unit;
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << unit;
  }
}

}  // namespace
}  // namespace asterism::data
