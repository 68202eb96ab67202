// Chat encoding, tokenizer and loss mask together, on the real vocabulary, which is not part of the repository.
#include <gtest/gtest.h>

#include "tests/data/chat_files.h"
#include "tests/data/tokenizer_files.h"

namespace asterism::data {
namespace {

class ChatGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = v4_tokenizer_folder();
    if (!folder) GTEST_SKIP() << "no DeepSeek-V4 tokenizer.json found: run make setup";
    tokenize_ = tokenize_with(std::make_shared<const Tokenizer>(Tokenizer::load(*folder)));
  }

  /// Compares ids, and weights where the case has them.
  void check(const JsonValue::Array& cases) {
    for (const JsonValue& item : cases) {
      // Cases of the older variant alone differ in the effort prefix, which the texts cover.
      const JsonValue& variants = item.get("variants");
      if (!variants.is_null() && variants.as_array().back() != JsonValue("v4-0731")) {
        continue;
      }
      SCOPED_TRACE(id_of(item));
      const ChatRow row = row_of_case(item);
      const auto samples = chat_samples(row.conversation, row.chat, row.loss, tokenize_, id_of(item));
      ASSERT_EQ(samples.size(), 1u);
      const Sample& sample = samples[0].sample;
      EXPECT_EQ(JsonValue::Array(sample.ids.begin(), sample.ids.end()), item.get("expected_ids").as_array());
      if (item.get("expected_weights").is_null()) continue;
      std::vector<float> expected;
      for (const JsonValue& weight : item.get("expected_weights").as_array()) {
        expected.push_back(static_cast<float>(weight.as_number()));
      }
      EXPECT_EQ(sample.weights, expected);
    }
  }

  TokenizeFunction tokenize_;
};

TEST_F(ChatGolden, IdsAndWeightsAreThoseOfTheOwnCases) {
  check(official_cases());
  for (const char* name : {"loss_mask.json", "encode_recommended.json"}) check(own_cases(name));
}

TEST_F(ChatGolden, IdsAreThoseOfThePublishedCases) {
  for (const char* name : {"official_v4.json", "ms_swift_0731.json"}) {
    const auto cases = published_cases(name);
    if (!cases) GTEST_SKIP() << "published pairs are not beside the sources";
    check(*cases);
  }
}

}  // namespace
}  // namespace asterism::data
