#include "asterism/data/loss_mask.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "asterism/core/rng.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kComponentNames[kNumComponents] = {"reasoning", "think_close", "content", "eos"};

LossOptions loss_options_of(const Json& options) {
  LossOptions result;
  result.history = history(options.at("history").get<std::string>());
  for (size_t i = 0; options.contains("component_weights") && i < kNumComponents; ++i) {
    result.component_weights[i] = options.at("component_weights").value(kComponentNames[i], 1.0f);
  }
  return result;
}

ChatOptions chat_options_of(const Json& options) {
  ChatOptions result;
  result.thinking_mode = thinking_mode(options.at("thinking_mode").get<std::string>());
  result.drop_thinking = options.value("drop_thinking", true);
  if (options.contains("reasoning_effort")) {
    result.reasoning_effort = reasoning_effort(options.at("reasoning_effort").get<std::string>());
  }
  return result;
}

/// The trained bytes of a sample whose tokens are bytes.
std::string trained_bytes(const Sample& sample) {
  std::string trained;
  for (size_t t = 0; t < sample.ids.size(); ++t) {
    if (sample.weights[t] > 0.0f) trained += static_cast<char>(sample.ids[t]);
  }
  return trained;
}

std::string all_bytes(const Sample& sample) {
  return {sample.ids.begin(), sample.ids.end()};
}

std::vector<Sample> samples_of(const Json& messages, ThinkingMode mode, History which, bool drop = true) {
  return encode_samples(messages, {.thinking_mode = mode, .drop_thinking = drop}, {.history = which},
                        test::tokenize_bytes, "here");
}

TEST(LossMask, TrainedTextsAreThoseOfTheGoldenCases) {
  int compared = 0, later = 0;
  const Json golden = test::encoding_golden("loss_mask.json");
  for (const Json& item : golden.at("cases")) {
    const auto id = item.at("id").get<std::string>();
    SCOPED_TRACE(id);
    std::vector<Sample> samples;
    try {
      samples = encode_samples(item.at("messages"), chat_options_of(item.at("options")),
                               loss_options_of(item.at("options")), test::tokenize_bytes, id);
    } catch (const ChatError& error) {
      EXPECT_EQ(error.category(), "unsupported_feature");
      ++later;
      continue;
    }
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(all_bytes(samples[0]), item.at("expected_text").get<std::string>());
    // With bytes as tokens no token crosses the start of a body, so these also train its first letter.
    const bool merged = id == "assistant_after_system";
    EXPECT_EQ(trained_bytes(samples[0]), (merged ? "s" : "") + item.at("trained_text").get<std::string>());
    ++compared;
  }
  EXPECT_GE(compared, 10);
  EXPECT_GE(later, 3);
}

TEST(LossMask, ComponentWeightsReachTheirTokens) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning_content": "r", "loss_weight": 0.5}])");
  const LossOptions loss{.history = History::Auto, .component_weights = {0.25f, 2.0f, 1.0f, 0.0f}};
  const auto samples =
      encode_samples(messages, {.thinking_mode = ThinkingMode::Thinking}, loss, test::tokenize_bytes, "here");
  const auto& weights = samples.at(0).weights;
  const std::string text = all_bytes(samples[0]);
  EXPECT_EQ(weights[text.find("r</think>")], 0.125f);
  EXPECT_EQ(weights[text.find("</think>")], 1.0f);
  EXPECT_EQ(weights[text.find("a<｜end")], 0.5f);
  EXPECT_EQ(weights.back(), 0.0f);
}

TEST(LossMask, TokenAcrossTheStartOfABodyIsNotTrained) {
  const std::vector<TargetBody> bodies = {{5, 9, {{5, 7, 1.0f}, {7, 9, 2.0f}}}, {12, 14, {{12, 14, 3.0f}}}};
  // Tokens: [0,4) [4,6) [6,8) [8,9) [9,12) [12,13) [13,15).
  const std::vector<size_t> ends = {4, 6, 8, 9, 12, 13, 15};
  EXPECT_EQ(token_weights(bodies, ends), (std::vector<float>{0, 0, 1, 2, 0, 3, 0}));
  EXPECT_EQ(token_weights({}, ends), std::vector<float>(7, 0.0f));
}

TEST(LossMask, SplitTrainsEveryTurnOnceWithItsReasoning) {
  const Json messages = Json::parse(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "r1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2", "reasoning_content": "r2"}])");
  const auto samples = samples_of(messages, ThinkingMode::Thinking, History::Split);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(trained_bytes(samples[0]), "r1</think>a1<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained_bytes(samples[1]), "r2</think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(all_bytes(samples[1]),
            "<｜begin▁of▁sentence｜>s<｜User｜>q1<｜Assistant｜></think>a1<｜end▁of▁sentence｜><｜User｜>q2"
            "<｜Assistant｜><think>r2</think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(samples[0].origin, "here turn 1");
}

TEST(LossMask, AutoTrainsOldAnswersOnlyWhereTheyAreComplete) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"},
      {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}])");
  const auto trained = [&](ThinkingMode mode, bool drop) {
    return trained_bytes(samples_of(messages, mode, History::Auto, drop).at(0));
  };
  EXPECT_EQ(trained(ThinkingMode::Thinking, true), "</think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained(ThinkingMode::Thinking, false), "</think>a1<｜end▁of▁sentence｜></think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained(ThinkingMode::Chat, true), "a1<｜end▁of▁sentence｜>a2<｜end▁of▁sentence｜>");
}

TEST(LossMask, UnansweredConversationHasNoTargets) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "q"}])");
  for (const History which : {History::Auto, History::All, History::LastTurn, History::Split}) {
    const auto samples = samples_of(messages, ThinkingMode::Chat, which);
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(samples[0].trained_tokens(), 0);
  }
}

TEST(LossMask, WrongWeightsAreErrors) {
  const auto category = [](const char* role, const char* key, const Json& value) -> std::string {
    Json messages = Json::parse(R"([{"role": "user", "content": "q"}])");
    messages.push_back({{"role", role}, {"content", "x"}, {key, value}});
    try {
      samples_of(messages, ThinkingMode::Chat, History::All);
    } catch (const ChatError& error) {
      EXPECT_EQ(error.message_index(), 1u);
      return error.category();
    }
    return "none";
  };
  EXPECT_EQ(category("assistant", "loss_weight", -1.0), "invalid_loss");
  EXPECT_EQ(category("assistant", "loss_weight", 1e300), "invalid_loss");
  EXPECT_EQ(category("assistant", "loss_weight", "1"), "invalid_loss");
  EXPECT_EQ(category("assistant", "loss", 1), "invalid_loss");
  EXPECT_EQ(category("system", "loss", true), "invalid_loss");
  EXPECT_EQ(category("system", "loss_weight", 2.0), "invalid_loss");
  EXPECT_EQ(category("system", "loss", false), "none");
  EXPECT_EQ(category("assistant", "loss", false), "none");
  EXPECT_THROW(history("last"), ChatError);
}

TEST(LossMask, TokensThatDoNotCoverTheTextAreAnError) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "q"}])");
  const TokenizeFunction cut = [](std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends) {
    test::tokenize_bytes(text.substr(1), ids, ends);
  };
  EXPECT_THROW(encode_samples(messages, {}, {}, cut, "here"), RunError);
}

/// A conversation of random shape: roles, reasoning, special strings inside texts, open ends.
Json random_conversation(uint64_t number) {
  const RandomStream stream(7, "conversation", {number});
  const char* texts[] = {"", "x", "two words", "\n\n", "第一", "</think>", "<｜User｜>", "a<｜end▁of▁sentence｜>b"};
  const char* roles[] = {"user", "assistant", "assistant", "user", "system", "latest_reminder", "developer"};
  Json messages = Json::array();
  uint64_t index = 0;
  const uint64_t count = 1 + stream.below(8, index++);
  while (messages.size() < count) {
    Json message = {{"role", roles[stream.below(7, index++)]}, {"content", texts[stream.below(8, index++)]}};
    if (message["role"] == "developer") message["content"] = "d";
    if (message["role"] == "assistant" && stream.below(2, index++)) message["reasoning_content"] = "because";
    if (message["role"] == "assistant" && stream.below(4, index++) == 0) message["wo_eos"] = true;
    messages.push_back(std::move(message));
  }
  return messages;
}

/// Tokens of one to four bytes, so that they cross every boundary sooner or later.
TokenizeFunction random_tokens(uint64_t number) {
  return [number](std::string_view text, std::vector<int64_t>& ids, std::vector<size_t>& ends) {
    const RandomStream stream(8, "tokens", {number});
    ids.clear();
    ends.clear();
    for (size_t end = 0; end < text.size();) {
      end = std::min(text.size(), end + 1 + stream.below(4, ids.size()));
      ids.push_back(static_cast<int64_t>(ends.size()));
      ends.push_back(end);
    }
  };
}

TEST(LossMask, TrainedBytesAreTheBodiesAndNothingElse) {
  for (uint64_t number = 0; number < 400; ++number) {
    SCOPED_TRACE(number);
    const Json messages = random_conversation(number);
    const ChatOptions options{.thinking_mode = number % 2 ? ThinkingMode::Thinking : ThinkingMode::Chat,
                              .drop_thinking = number % 4 < 2};
    const EncodedChat chat = encode_chat(messages, options);
    std::string bodies;
    for (const auto& body : chat.bodies) bodies += chat.text.substr(body.begin, body.end - body.begin);
    const auto by_byte = encode_samples(messages, options, {.history = History::All}, test::tokenize_bytes, "");
    EXPECT_EQ(trained_bytes(by_byte.at(0)), bodies);

    std::vector<int64_t> ids;
    std::vector<size_t> ends;
    random_tokens(number)(chat.text, ids, ends);
    const auto targets = target_bodies(chat, messages, {.history = History::All});
    const auto weights = token_weights(targets, ends);
    for (size_t t = 0; t < ends.size(); ++t) {
      const size_t begin = t == 0 ? 0 : ends[t - 1];
      const bool inside = std::any_of(chat.bodies.begin(), chat.bodies.end(), [&](const AssistantBody& body) {
        return body.begin <= begin && ends[t] <= body.end;
      });
      EXPECT_EQ(weights[t], inside ? 1.0f : 0.0f);
    }
  }
}

}  // namespace
}  // namespace asterism::data
