#include "asterism/data/chat_error.h"

#include <gtest/gtest.h>

namespace asterism::data {
namespace {

TEST(ChatError, NamesCategoryAndMessage) {
  const ChatError located("unknown_role", 3, "no such role");
  EXPECT_STREQ(located.what(), "[unknown_role] message 3: no such role");
  EXPECT_EQ(located.explanation(), "message 3: no such role");
  EXPECT_EQ(located.category(), "unknown_role");
  EXPECT_EQ(located.message_index(), 3u);
  const ChatError general("invalid_history", std::nullopt, "no such history");
  EXPECT_STREQ(general.what(), "[invalid_history] no such history");
  EXPECT_EQ(general.message_index(), std::nullopt);
}

}  // namespace
}  // namespace asterism::data
