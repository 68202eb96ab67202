// Chat encoding, tokenizer and loss mask together, on the real vocabulary, which is not part of the repository.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/data/loss_mask.h"
#include "asterism/data/tokenizer.h"
#include "tests/data/tokenizer_files.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;

TokenizeFunction tokenize_with(const Tokenizer& tokenizer) {
  return [&tokenizer](std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends) {
    const Encoding encoding = tokenizer.encode_with_ranges(text);
    ids = encoding.ids;
    ends.clear();
    for (const ByteRange& range : encoding.ranges) ends.push_back(range.end);
  };
}

ChatOptions chat_options_of(const Json& options) {
  ChatOptions result;
  result.thinking_mode = thinking_mode(options.at("thinking_mode").get<std::string>());
  result.drop_thinking = options.value("drop_thinking", true);
  result.add_default_bos_token = options.value("add_default_bos_token", true);
  if (options.contains("reasoning_effort")) {
    result.reasoning_effort = reasoning_effort(options.at("reasoning_effort").get<std::string>());
  }
  return result;
}

LossOptions loss_options_of(const Json& options) {
  LossOptions result;
  result.history = history(options.value("history", "auto"));
  constexpr const char* kNames[kNumComponents] = {"reasoning", "think_close", "content", "eos"};
  for (size_t i = 0; options.contains("component_weights") && i < kNumComponents; ++i) {
    result.component_weights[i] = options.at("component_weights").value(kNames[i], 1.0f);
  }
  return result;
}

class ChatGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = v4_tokenizer_folder();
    if (!folder) GTEST_SKIP() << "no DeepSeek-V4 tokenizer.json found: run make setup";
    tokenizer_.emplace(Tokenizer::load(*folder));
  }

  /// Compares ids, and weights where the case has them. False for a case that comes with later work.
  bool check(const Json& item) {
    const Json& options = item.at("options");
    if (item.contains("context") || options.contains("tools")) return false;
    std::vector<Sample> samples;
    try {
      samples = encode_samples(item.at("messages"), chat_options_of(options), loss_options_of(options),
                               tokenize_with(*tokenizer_), item.at("id").get<std::string>());
    } catch (const ChatError& error) {
      EXPECT_EQ(error.category(), "unsupported_feature");
      return false;
    }
    EXPECT_EQ(samples.at(0).ids, item.at("expected_ids").get<std::vector<int64_t>>());
    if (item.contains("expected_weights")) {
      EXPECT_EQ(samples[0].weights, item.at("expected_weights").get<std::vector<float>>());
    }
    return true;
  }

  std::optional<Tokenizer> tokenizer_;
};

TEST_F(ChatGolden, IdsAndWeightsAreThoseOfTheGoldenCases) {
  for (const char* name : {"loss_mask.json", "derived_encode.json", "encode_recommended.json"}) {
    int compared = 0, later = 0;
    const Json golden = test::encoding_golden(name);
    for (const Json& item : golden.at("cases")) {
      // Cases of the older variant alone differ in the effort prefix, which the texts cover.
      if (item.contains("variants") && item.at("variants").back() != "v4-0731") continue;
      SCOPED_TRACE(item.at("id").get<std::string>());
      ++(check(item) ? compared : later);
    }
    EXPECT_GT(compared, 0) << name;
    EXPECT_GT(later, 0) << name;
  }
}

}  // namespace
}  // namespace asterism::data
