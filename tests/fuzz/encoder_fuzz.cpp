#include <gtest/gtest.h>

#include "asterism/data/chat_encoder.h"
#include "asterism/data/loss_mask.h"
#include "asterism/data/python_json.h"
#include "asterism/data/rows.h"
#include "asterism/data/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/data_files.h"

namespace asterism::fuzz {
namespace {

using namespace asterism::data;

/// A chat row with all its options at times.
JsonValue random_row(Dice& dice) {
  const Conversation conversation = test::hostile_conversation(dice);
  JsonValue row = JsonValue::object({{"messages", conversation.messages}});
  if (dice.chance(0.5)) row.set("tools", conversation.tools);
  if (dice.chance(0.2)) row.set("context", test::hostile_conversation(dice).messages);
  if (dice.chance(0.2)) row.set("response_format", test::hostile_json(dice, 2));
  if (dice.chance(0.5)) row.set("thinking_mode", dice.chance(0.5) ? "chat" : "thinking");
  if (dice.chance(0.3)) row.set("drop_thinking", dice.chance(0.5));
  if (dice.chance(0.3)) row.set("reasoning_effort", dice.pick(std::vector<const char*>{"none", "low", "high", "max"}));
  if (dice.chance(0.3)) row.set("history", dice.pick(std::vector<const char*>{"auto", "all", "last_turn", "split"}));
  if (dice.chance(0.2)) row.set("add_bos", false);
  if (dice.chance(0.2)) row.set("special_in_content", dice.pick(std::vector<const char*>{"reject", "as_text"}));
  if (dice.chance(0.2)) row.set("reject_unframeable", true);
  if (dice.chance(0.2)) row.set("tool_choice", "none");
  return row;
}

void check_parts(const EncodedChat& encoded) {
  size_t at = 0;
  for (const AssistantBody& body : encoded.bodies) {
    ASSERT_LE(at, body.begin);
    at = body.begin;
    for (const BodyPart& part : body.parts) {
      ASSERT_EQ(part.begin, at);
      ASSERT_LT(part.begin, part.end);
      at = part.end;
    }
    ASSERT_EQ(at, body.end);
  }
  ASSERT_LE(at, encoded.text.size());
  ASSERT_FALSE(find_invalid_utf8(encoded.text));
}

TEST(Fuzz, Encoder) {
  const std::vector<std::string> others = {R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})"};
  for_each_input("encoder", 5000, [&](Dice& dice) {
    JsonValue row = random_row(dice);
    if (dice.chance(0.7)) {
      for (uint64_t i = 0; i <= dice.below(3); ++i) mutate_values(dice, row);
      if (!row.is_object()) return;
    } else {
      const std::string text = mutated(dice, to_json(row), others);
      row = parse_row({text, "fuzz", false});
    }
    ChatDefaults defaults;
    defaults.chat.variant = dice.pick(std::vector{ChatVariant::V4Preview, ChatVariant::V4_0731, ChatVariant::V4_1});
    const ChatRow chat = read_chat_row(std::move(row), defaults);
    check_parts(encode_chat(chat.conversation, chat.chat));
    for (const ChatSample& sample :
         chat_samples(chat.conversation, chat.chat, chat.loss, test::tokenize_bytes, "fuzz")) {
      ASSERT_EQ(sample.sample.ids.size(), sample.text.size());
      ASSERT_EQ(sample.sample.weights.size(), sample.text.size());
    }
  });
}

}  // namespace
}  // namespace asterism::fuzz
