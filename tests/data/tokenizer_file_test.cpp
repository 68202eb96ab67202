#include "asterism/data/tokenizer_file.h"

#include <gtest/gtest.h>

#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

using nlohmann::json;

TEST(TokenizerFile, KeepsTheRestAsItIs) {
  json file = small_tokenizer({{"a", "b"}, {"ab", "c"}});
  file["added_tokens"] = {added_token(260, "<s>", {"special"})};
  file["other"] = {1, -2, 2.5, true, nullptr, "text", {{"vocab", {{"x", {1, 2}}}}, {"merges", json::array({7})}}};
  file["vocab"] = {{"y", "not the model's"}};
  const TokenizerFile read = read_tokenizer_file(file.dump(2), "file");
  EXPECT_EQ(read.tables.vocab.size(), file["model"]["vocab"].size());
  for (const auto& [token, id] : read.tables.vocab) EXPECT_EQ(file["model"]["vocab"].at(token), id);
  ASSERT_EQ(read.tables.merges.size(), 2u);
  EXPECT_EQ(read.tables.merges[1].left, "ab");
  EXPECT_EQ(read.tables.merges[1].right, "c");
  file["model"]["vocab"] = json::object();
  file["model"]["merges"] = json::array();
  EXPECT_EQ(read.rest, file);
}

TEST(TokenizerFile, ReadsMergesOfBothSpellingsAndEscapes) {
  const TokenizerFile read = read_tokenizer_file(
      R"({"model": {"vocab": {"\u0120a\"": 3}, "merges": ["a b", ["c d", "e"], ["", "\n"]]}})", "f");
  ASSERT_EQ(read.tables.vocab.size(), 1u);
  EXPECT_EQ(read.tables.vocab[0].token, "Ġa\"");
  EXPECT_EQ(read.tables.vocab[0].id, 3);
  ASSERT_EQ(read.tables.merges.size(), 3u);
  EXPECT_EQ(read.tables.merges[1].left, "c d");
  EXPECT_EQ(read.tables.merges[2].right, "\n");
}

TEST(TokenizerFile, OfRepeatedMembersTheLastCounts) {
  const TokenizerFile read = read_tokenizer_file(
      R"({"model": {"vocab": {"a": 1}, "merges": ["a b"]}, "model": {"vocab": {"b": 2}, "merges": []}})", "f");
  ASSERT_EQ(read.tables.vocab.size(), 1u);
  EXPECT_EQ(read.tables.vocab[0].token, "b");
  EXPECT_TRUE(read.tables.merges.empty());
}

TEST(TokenizerFile, ListsOfAnotherKindAreLeftToTheModel) {
  const TokenizerFile read = read_tokenizer_file(R"({"model": {"vocab": [1], "merges": {"a": 1}}})", "f");
  EXPECT_EQ(read.rest["model"]["vocab"], json::array({1}));
  EXPECT_EQ(read.rest["model"]["merges"], json({{"a", 1}}));
  EXPECT_EQ(read_tokenizer_file("[[1], 2]", "f").rest, json::parse("[[1], 2]"));
}

TEST(TokenizerFile, NamesTheDamage) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"model": {"vocab": {"a": 1)", "f: not valid JSON (damaged or incomplete file?)"},
      {"", "f: not valid JSON"},
      {R"({"model": {"vocab": {"a": "1"}}})", "f.model.vocab: token \"a\" has id \"1\"; expected an integer"},
      {R"({"model": {"vocab": {"a": 1.5}}})", "token \"a\" has id 1.5"},
      {R"({"model": {"vocab": {"a": 18446744073709551615}}})", "token \"a\" has id 18446744073709551615"},
      {R"({"model": {"vocab": {"a": {}}}})", "token \"a\" has id an object"},
      {R"({"model": {"vocab": {"a": []}}})", "token \"a\" has id an array"},
      {R"({"model": {"merges": ["a b", "ab"]}})", "f.model.merges[1]: expected \"left right\" or"},
      {R"({"model": {"merges": ["a b c"]}})", "f.model.merges[0]: expected"},
      {R"({"model": {"merges": [["a"]]}})", "found [\"a\"]"},
      {R"({"model": {"merges": [["a", "b", "c"]]}})", "found [\"a\",\"b\",\"c\"]"},
      {R"({"model": {"merges": [["a", 1]]}})", "found 1"},
      {R"({"model": {"merges": [[["a"], "b"]]}})", "found an array"},
      {R"({"model": {"merges": [null]}})", "found null"}};
  for (const auto& [text, expected] : cases) {
    const std::string message = message_of([&] { read_tokenizer_file(text, "f"); });
    EXPECT_NE(message.find(expected), std::string::npos) << expected << " in: " << message;
  }
}

}  // namespace
}  // namespace asterism::data
