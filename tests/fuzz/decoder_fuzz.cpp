#include <gtest/gtest.h>

#include "asterism/data/chat_encoder.h"
#include "asterism/data/utf8.h"
#include "tests/data/decoding.h"
#include "tests/fuzz/fuzz.h"

namespace asterism::fuzz {
namespace {

using namespace asterism::data;
using Json = nlohmann::ordered_json;

/// Completions as the golden cases and the encoder have them.
std::vector<std::string> completions() {
  std::vector<std::string> texts;
  for (const GoldenCompletion& completion : golden_completions()) texts.push_back(completion.text);
  for (uint64_t id = 0; id < 50; ++id) {
    Dice dice(1, "completions", id);
    const EncodedChat encoded = encode_chat(test::hostile_conversation(dice), {});
    for (const AssistantBody& body : encoded.bodies) {
      texts.push_back(encoded.text.substr(body.begin, body.end - body.begin));
    }
  }
  return texts;
}

DecodeOptions random_decode_options(Dice& dice) {
  DecodeOptions options;
  options.variant = dice.chance(0.3) ? ChatVariant::V4_1 : ChatVariant::V4_0731;
  options.thinking_mode = dice.chance(0.5) ? ThinkingMode::Thinking : ThinkingMode::Chat;
  options.mode = dice.chance(0.5) ? DecodeMode::Strict : DecodeMode::Recover;
  options.tools_declared = dice.chance(0.7);
  return options;
}

TEST(Fuzz, Decoder) {
  const std::vector<std::string> sources = completions();
  for_each_input("decoder", 20000, [&](Dice& dice) {
    const DecodeOptions options = random_decode_options(dice);
    std::string text = mutated(dice, dice.pick(sources), sources);
    if (options.variant == ChatVariant::V4_1) text = in_v41_tags(std::move(text));
    const Json whole = decoded(text, options);
    DecodedChat joined;
    const Json in_pieces = decoded_from(random_pieces(dice, text), options, [&](const ChatDelta& delta) {
      if (delta.kind == ChatDelta::Kind::Reasoning) joined.reasoning_content += delta.text;
      if (delta.kind == ChatDelta::Kind::Content) joined.content += delta.text;
      if (delta.kind == ChatDelta::Kind::ToolCall) joined.tool_calls.push_back(delta.call);
    });
    ASSERT_EQ(in_pieces, whole) << text;
    if (whole.contains("error")) {
      ASSERT_EQ(options.mode, DecodeMode::Strict) << text;
      return;
    }
    ASSERT_EQ(message_json(joined), whole.at("message")) << text;
    ASSERT_FALSE(find_invalid_utf8(whole.dump())) << text;  // dump would have thrown
    if (options.mode == DecodeMode::Recover || !whole.at("finished") || !whole.at("issues").empty()) return;
    DecodeOptions lenient = options;
    lenient.mode = DecodeMode::Recover;
    ASSERT_EQ(decoded(text, lenient), whole) << text;
  });
}

}  // namespace
}  // namespace asterism::fuzz
