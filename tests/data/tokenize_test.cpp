#include "asterism/data/tokenize.h"

#include <gtest/gtest.h>

#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

TEST(Tokenize, GivesIdsAndEndsAndTakesRangesAsText) {
  nlohmann::json file = small_tokenizer({{"a", "b"}});
  file["added_tokens"].push_back(added_token(300, "<u>"));
  TokenizeFunction tokenize =
      tokenize_with(std::make_shared<const Tokenizer>(Tokenizer::parse(file.dump(), "tokenizer.json")));
  std::vector<int64_t> ids{9};
  std::vector<size_t> ends{9};
  tokenize("ab<u>a", {}, ids, ends);
  EXPECT_EQ(ids, (std::vector<int64_t>{256, 300, 97}));
  EXPECT_EQ(ends, (std::vector<size_t>{2, 5, 6}));
  const ByteRange content{2, 5};
  tokenize("ab<u>a", {&content, 1}, ids, ends);
  EXPECT_EQ(ids, (std::vector<int64_t>{256, '<', 'u', '>', 97}));
  EXPECT_EQ(ends, (std::vector<size_t>{2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace asterism::data
