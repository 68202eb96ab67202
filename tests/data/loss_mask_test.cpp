#include "asterism/data/loss_mask.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "asterism/core/rng.h"
#include "asterism/data/packing.h"
#include "tests/data/chat_files.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

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

std::vector<Sample> encode_samples(const Conversation& conversation, const ChatOptions& chat, const LossOptions& loss,
                                   const TokenizeFunction& tokenize = test::tokenize_bytes) {
  std::vector<Sample> samples;
  for (ChatSample& sample : chat_samples(conversation, chat, loss, tokenize, "here")) {
    samples.push_back(std::move(sample.sample));
  }
  return samples;
}

std::vector<Sample> samples_of(const Conversation& conversation, ThinkingMode mode, History which, bool drop = true) {
  return encode_samples(conversation, {.thinking_mode = mode, .drop_thinking = drop}, {.history = which});
}

TEST(LossMask, TrainedTextsAreThoseOfTheGoldenCases) {
  const auto cases = own_cases("loss_mask.json");
  for (const JsonValue& item : cases) {
    SCOPED_TRACE(id_of(item));
    const ChatRow row = row_of_case(item);
    const auto samples = encode_samples(row.conversation, row.chat, row.loss);
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(all_bytes(samples[0]), item.get("expected_text").as_string());
    // With bytes as tokens no token crosses the start of a body, so these also train its first letter.
    const bool merged = id_of(item) == "assistant_after_system";
    EXPECT_EQ(trained_bytes(samples[0]), (merged ? "s" : "") + item.get("trained_text").as_string());
  }
  EXPECT_EQ(cases.size(), 16u);
}

TEST(LossMask, ComponentWeightsReachTheirTokens) {
  const auto conversation = messages(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a", "reasoning_content": "r", "loss_weight": 0.5,
       "tool_calls": [{"function": {"name": "f"}}]}])");
  const LossOptions loss{.history = History::Auto, .component_weights = {0.25f, 2.0f, 1.0f, 3.0f, 0.0f}};
  const auto samples = encode_samples(conversation, {.thinking_mode = ThinkingMode::Thinking}, loss);
  const auto& weights = samples.at(0).weights;
  const std::string text = all_bytes(samples[0]);
  EXPECT_EQ(weights[text.find("r</think>")], 0.125f);
  EXPECT_EQ(weights[text.find("</think>")], 1.0f);
  const size_t content = text.find("a\n\n<");
  EXPECT_EQ(weights[content], 0.5f);
  EXPECT_EQ(weights[content + 1], 1.5f);  // the blank line belongs to the call
  EXPECT_EQ(weights[text.find("<｜end") - 1], 1.5f);
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
  const auto conversation = messages(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "r1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2", "reasoning_content": "r2"}])");
  const auto samples = samples_of(conversation, ThinkingMode::Thinking, History::Split);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(trained_bytes(samples[0]), "r1</think>a1<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained_bytes(samples[1]), "r2</think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(all_bytes(samples[1]),
            "<｜begin▁of▁sentence｜>s<｜User｜>q1<｜Assistant｜></think>a1<｜end▁of▁sentence｜><｜User｜>q2"
            "<｜Assistant｜><think>r2</think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(samples[0].origin, "here turn 1");
}

TEST(LossMask, AutoTrainsOldAnswersOnlyWhereTheyAreComplete) {
  const auto conversation = messages(R"([{"role": "user", "content": "q1"}, {"role": "assistant", "content": "a1"},
      {"role": "user", "content": "q2"}, {"role": "assistant", "content": "a2"}])");
  const auto trained = [&](ThinkingMode mode, bool drop) {
    return trained_bytes(samples_of(conversation, mode, History::Auto, drop).at(0));
  };
  EXPECT_EQ(trained(ThinkingMode::Thinking, true), "</think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained(ThinkingMode::Thinking, false), "</think>a1<｜end▁of▁sentence｜></think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained(ThinkingMode::Chat, true), "a1<｜end▁of▁sentence｜>a2<｜end▁of▁sentence｜>");
}

TEST(LossMask, UnansweredConversationHasNoTargets) {
  const auto conversation = messages(R"([{"role": "user", "content": "q"}])");
  for (const History which : {History::Auto, History::All, History::LastTurn, History::Split}) {
    const auto samples = samples_of(conversation, ThinkingMode::Chat, which);
    ASSERT_EQ(samples.size(), 1u);
    EXPECT_EQ(samples[0].trained_tokens(), 0);
  }
}

TEST(LossMask, WrongWeightsAreErrors) {
  const auto category = [](const char* role, const char* key, const JsonValue& value) -> std::string {
    auto conversation = messages(R"([{"role": "user", "content": "q"}])");
    conversation.messages.as_array().push_back(JsonValue::object({{"role", role}, {"content", "x"}, {key, value}}));
    try {
      samples_of(conversation, ThinkingMode::Chat, History::All);
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
  const auto conversation = messages(R"([{"role": "user", "content": "q"}])");
  const TokenizeFunction cut = [](std::string_view text, std::span<const ByteRange> as_text, std::vector<int64_t>& ids,
                                  std::vector<size_t>& ends) {
    test::tokenize_bytes(text.substr(1), as_text, ids, ends);
  };
  EXPECT_THROW(encode_samples(conversation, {}, {}, cut), RunError);
}

/// A conversation of random shape: roles, reasoning, calls, results, special strings inside texts, open ends.
Conversation random_conversation(uint64_t number) {
  const RandomStream stream(7, "conversation", {number});
  uint64_t draw = 0;
  const auto below = [&](uint64_t limit) { return stream.below(limit, draw++); };
  const char* texts[] = {"", "x", "two words", "\n\n", "第一", "</think>", "<｜User｜>", "a<｜end▁of▁sentence｜>b"};
  const char* roles[] = {"user", "assistant", "assistant", "user", "system", "latest_reminder", "developer", "tool"};
  const JsonValue calls = json(R"([{"id": "c1", "function": {"name": "f", "arguments": {"k": "v", "n": [1.0]}}},
                                   {"id": "c2", "function": {"name": "g", "arguments": "not json"}}])");
  const JsonValue tools = json(R"([{"function": {"name": "f"}}])");
  JsonValue::Array list;
  const uint64_t count = 1 + below(8);
  while (list.size() < count) {
    JsonValue message = JsonValue::object({{"role", roles[below(8)]}, {"content", texts[below(8)]}});
    const std::string role = message.get("role").as_string();
    if (role == "developer") message.set("content", "d");
    if (role == "tool") message.set("tool_call_id", below(2) ? "c1" : "c2");
    if (role == "system" && below(4) == 0) message.set("tools", tools);
    if (role == "user" && below(8) == 0) message.set("task", "query");
    if (role == "assistant") {
      if (below(2)) message.set("reasoning_content", "because");
      if (below(3) == 0) message.set("tool_calls", calls);
      if (below(4) == 0) message.set("wo_eos", true);
    }
    list.push_back(std::move(message));
  }
  return {std::move(list), {}, {}, {}};
}

ChatOptions random_options(uint64_t number) {
  return {.variant = number % 3 == 0 ? ChatVariant::V4_1 : ChatVariant::V4_0731,
          .thinking_mode = number % 2 ? ThinkingMode::Thinking : ThinkingMode::Chat,
          .drop_thinking = number % 4 < 2};
}

/// Tokens of one to four bytes, so that they cross every boundary sooner or later.
TokenizeFunction random_tokens(uint64_t number) {
  return [number](std::string_view text, std::span<const ByteRange>, std::vector<int64_t>& ids,
                  std::vector<size_t>& ends) {
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
  for (uint64_t number = 0; number < 600; ++number) {
    SCOPED_TRACE(number);
    const Conversation conversation = random_conversation(number);
    const ChatOptions options = random_options(number);
    const EncodedChat chat = encode_chat(conversation, options);
    std::string bodies;
    for (const auto& body : chat.bodies) bodies += chat.text.substr(body.begin, body.end - body.begin);
    const auto by_byte = encode_samples(conversation, options, {.history = History::All});
    EXPECT_EQ(trained_bytes(by_byte.at(0)), bodies);

    std::vector<int64_t> ids;
    std::vector<size_t> ends;
    random_tokens(number)(chat.text, {}, ids, ends);
    const auto targets = target_bodies(chat, conversation.messages, {.history = History::All});
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

/// Every answer behind a user turn is trained once, and with the reasoning that it has as the last one.
TEST(LossMask, SplitTrainsEveryAnsweredTurnOnce) {
  for (uint64_t number = 0; number < 600; ++number) {
    SCOPED_TRACE(number);
    const Conversation conversation = random_conversation(number);
    ChatOptions options = random_options(number);
    const auto ends = answered_turn_ends(conversation, options.variant);
    const auto samples = encode_samples(conversation, options, {.history = History::Split});
    if (ends.empty()) continue;
    ASSERT_EQ(samples.size(), ends.size());
    std::string trained, last_turns;
    for (const Sample& sample : samples) trained += trained_bytes(sample);
    for (const size_t end : ends) {
      const EncodedChat prefix = encode_chat(conversation, options, end);
      for (const auto& body : prefix.bodies) {
        if (body.in_last_turn) last_turns += prefix.text.substr(body.begin, body.end - body.begin);
      }
    }
    EXPECT_EQ(trained, last_turns);
  }
}

/// TC30 of pitfalls.md: two turns whose old reasoning is dropped are two samples, each trained on its last answer.
TEST(LossMask, TwoTurnsOfReasoningAreTwoSamples) {
  const auto conversation = messages(R"([{"role": "user", "content": "q1"},
      {"role": "assistant", "content": "a1", "reasoning_content": "r1"}, {"role": "user", "content": "q2"},
      {"role": "assistant", "content": "a2", "reasoning_content": "r2"}])");
  const auto samples = samples_of(conversation, ThinkingMode::Thinking, History::Split);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(all_bytes(samples[0]),
            "<｜begin▁of▁sentence｜><｜User｜>q1<｜Assistant｜><think>r1</think>a1<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained_bytes(samples[0]), "r1</think>a1<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained_bytes(samples[1]), "r2</think>a2<｜end▁of▁sentence｜>");
  EXPECT_EQ(all_bytes(samples[1]).find("r1"), std::string::npos);
}

TEST(LossMask, SplitOfAToolLoopTrainsEveryStepWithItsReasoning) {
  auto conversation = messages(R"([{"role": "user", "content": "q"},
      {"role": "assistant", "reasoning": "r1", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
      {"role": "tool", "content": "t", "tool_call_id": "c"},
      {"role": "assistant", "content": "a", "reasoning": "r2"}])");
  conversation.tools = json(R"([{"function": {"name": "f"}}])");
  const auto samples = samples_of(conversation, ThinkingMode::Thinking, History::Split);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_TRUE(trained_bytes(samples[0]).starts_with("r1</think>\n\n<｜DSML｜tool_calls>"));
  EXPECT_EQ(trained_bytes(samples[1]), "r2</think>a<｜end▁of▁sentence｜>");
  EXPECT_NE(all_bytes(samples[1]).find("<think>r1</think>"), std::string::npos);  // tools keep it
  const auto automatic = samples_of(conversation, ThinkingMode::Thinking, History::Auto);
  EXPECT_EQ(trained_bytes(automatic.at(0)), trained_bytes(samples[0]) + trained_bytes(samples[1]));
}

/// What is trained does not depend on how samples are laid into rows.
TEST(LossMask, PackingKeepsTheSumOfWeights) {
  std::vector<Sample> samples;
  double sum = 0;
  for (uint64_t number = 0; number < 50; ++number) {
    for (Sample& sample : encode_samples(random_conversation(number), random_options(number), {})) {
      for (const float weight : sample.weights) sum += weight;
      samples.push_back(std::move(sample));
    }
  }
  std::vector<uint32_t> lengths;
  for (const Sample& sample : samples) lengths.push_back(static_cast<uint32_t>(sample.size()));
  for (const int64_t sequence_length : {8192, 65536}) {
    const RowPlan plan = pack_documents(lengths, {.sequence_length = sequence_length});
    double packed = 0;
    for (int64_t number = 0; number < plan.rows(); ++number) {
      PackedRow row;
      for (const uint32_t document : plan.row(number)) append_document(row, samples[document]);
      for (const float weight : row.weights) packed += weight;
    }
    EXPECT_EQ(packed, sum);
  }
}

/// A tokenizer of bytes and one special token, id 300, that takes texts as text where it is told to.
void tokenize_special(std::string_view text, std::span<const ByteRange> as_text, std::vector<int64_t>& ids,
                      std::vector<size_t>& ends) {
  constexpr std::string_view kSpecial = "<｜User｜>";
  ids.clear();
  ends.clear();
  for (size_t at = 0; at < text.size();) {
    const size_t end = at + kSpecial.size();
    const bool special = text.substr(at, kSpecial.size()) == kSpecial &&
                         std::none_of(as_text.begin(), as_text.end(),
                                      [&](const ByteRange& range) { return range.begin < end && at < range.end; });
    ids.push_back(special ? 300 : static_cast<uint8_t>(text[at]));
    ends.push_back(at = special ? end : at + 1);
  }
}

TEST(LossMask, SpecialTokensInContentsAreAllowedRefusedOrText) {
  const auto count = [](const Conversation& conversation, SpecialInContent special) {
    ChatOptions options;
    options.special_in_content = special;
    const auto samples = encode_samples(conversation, options, {}, tokenize_special);
    return std::count(samples.at(0).ids.begin(), samples[0].ids.end(), 300);
  };
  const auto clean = messages(R"([{"role": "user", "content": "<｜User"}, {"role": "assistant", "content": "｜>"}])");
  EXPECT_EQ(count(clean, SpecialInContent::Allow), 1);
  EXPECT_EQ(count(clean, SpecialInContent::AsText), 1);
  EXPECT_EQ(count(clean, SpecialInContent::Reject), 1);
  const char* hostile[] = {
      R"([{"role": "system", "content": "ok"}, {"role": "user", "content": "say <｜User｜>"}])",
      R"([{"role": "user", "content": ""}, {"role": "assistant", "content": "<｜User｜>"}])",
      R"([{"role": "user", "content": ""}, {"role": "tool", "content": "<｜User｜>"}])",
      R"([{"role": "user", "content": ""}, {"role": "assistant", "tool_calls": [
          {"function": {"name": "f", "arguments": "{\"k\": [\"<｜User｜>\"]}"}}]}])",
      R"([{"role": "user", "content": ""}, {"role": "latest_reminder", "content": "<｜User｜>"}])",
      // A token across two contents.
      R"([{"role": "user", "content": ""}, {"role": "system", "content": "<｜Us"},
          {"role": "assistant", "content": "er｜>"}])",
  };
  for (const char* list : hostile) {
    const auto conversation = messages(list);
    EXPECT_EQ(count(conversation, SpecialInContent::Allow), 2) << list;
    EXPECT_EQ(count(conversation, SpecialInContent::AsText), 1) << list;
    try {
      count(conversation, SpecialInContent::Reject);
      ADD_FAILURE() << list;
    } catch (const ChatError& error) {
      EXPECT_EQ(error.category(), "special_in_content");
      EXPECT_EQ(error.message_index(), 1u) << list;
    }
  }
}

}  // namespace
}  // namespace asterism::data
