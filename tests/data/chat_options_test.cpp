#include "asterism/data/chat_options.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

template <typename Call>
std::string category(const Call& call) {
  try {
    call();
  } catch (const ChatError& error) {
    return error.category();
  }
  return "none";
}

TEST(ChatOptions, EveryVariantHasItsName) {
  for (const char* name : {"v4-preview", "v4-0731", "v4-flash-vision", "v4.1"}) {
    EXPECT_STREQ(variant_name(chat_variant(name)), name);
  }
}

TEST(ChatOptions, UnknownNamesAreErrorsThatListTheKnownOnes) {
  EXPECT_EQ(category([] { chat_variant("v4"); }), "invalid_variant");
  EXPECT_EQ(category([] { thinking_mode("Thinking"); }), "invalid_thinking_mode");
  EXPECT_EQ(category([] { reasoning_effort("medium"); }), "invalid_reasoning_effort");
  EXPECT_EQ(category([] { special_in_content("escape"); }), "invalid_special_in_content");
  try {
    reasoning_effort("medium");
  } catch (const ChatError& error) {
    EXPECT_EQ(error.explanation(), "reasoning_effort is \"medium\"; known are none, low, high, max");
  }
}

TEST(ChatOptions, EffortsAreNamesOrNumbers) {
  EXPECT_EQ(effort_of(JsonValue("max")), (ReasoningEffort{EffortLevel::Max}));
  EXPECT_EQ(effort_of(JsonValue("")), (ReasoningEffort{EffortLevel::Empty}));
  EXPECT_EQ(effort_of(JsonValue(1)), (ReasoningEffort{EffortLevel::Number, 1}));
  EXPECT_EQ(effort_of(JsonValue(100)), (ReasoningEffort{EffortLevel::Number, 100}));
  for (const JsonValue& value : {JsonValue(0), JsonValue(101), JsonValue(50.0), JsonValue(true), JsonValue("50"),
                                 JsonValue(), JsonValue(JsonValue::BigInteger{"10000000000000000000"})}) {
    EXPECT_EQ(category([&] { effort_of(value); }), "invalid_reasoning_effort") << value.type_name();
  }
}

}  // namespace
}  // namespace asterism::data
