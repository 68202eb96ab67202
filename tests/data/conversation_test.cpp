#include "asterism/data/conversation.h"

#include <gtest/gtest.h>

#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

Conversation of_roles(std::string_view letters) {
  JsonValue::Array list;
  for (const char letter : letters) {
    const char* role = letter == 'u' ? "user" : letter == 'a' ? "assistant" : letter == 't' ? "tool" : "system";
    list.push_back(JsonValue::object({{"role", role}, {"content", "x"}}));
  }
  return {std::move(list), {}, {}, {}};
}

TEST(Conversation, TurnsEndBehindTheirAnswers) {
  const auto ends = [](std::string_view roles, ChatVariant variant = ChatVariant::V4_0731) {
    return answered_turn_ends(of_roles(roles), variant);
  };
  using Ends = std::vector<size_t>;
  EXPECT_EQ(ends("suaua"), (Ends{3, 5}));
  EXPECT_EQ(ends("auaasu"), (Ends{4}));
  EXPECT_EQ(ends("uusuaa"), (Ends{6}));
  EXPECT_EQ(ends("suattaua"), (Ends{3, 6, 8}));
  EXPECT_EQ(ends("uasa"), (Ends{4}));
  EXPECT_EQ(ends("uasa", ChatVariant::V4_1), (Ends{2, 4}));
  EXPECT_EQ(ends("sa", ChatVariant::V4_1), Ends{});
  EXPECT_EQ(ends("aa"), Ends{});
  EXPECT_EQ(ends(""), Ends{});
  Conversation continued = of_roles("a");
  continued.context = of_roles("su").messages;
  EXPECT_EQ(answered_turn_ends(continued, ChatVariant::V4_0731), (Ends{1}));
}

TEST(Conversation, ReasoningIsFoundUnderBothNames) {
  EXPECT_TRUE(has_reasoning(messages(R"([{"role": "assistant", "reasoning": "r"}])")));
  EXPECT_TRUE(has_reasoning(messages(R"([{"role": "assistant", "reasoning_content": "r"}])")));
  EXPECT_FALSE(has_reasoning(messages(R"([{"role": "assistant", "reasoning_content": ""}])")));
  EXPECT_FALSE(has_reasoning(messages(R"([{"role": "user", "reasoning_content": "r"}])")));
  EXPECT_FALSE(has_reasoning(messages(R"([5, {"role": 3}])")));
  EXPECT_FALSE(has_reasoning(messages("{}")));
}

}  // namespace
}  // namespace asterism::data
