#include "asterism/data/decoded_chat.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace asterism::data {
namespace {

TEST(DecodedChat, TheMessageHasAllItsKeysInOrder) {
  DecodedChat chat;
  chat.content = "c";
  chat.tool_calls = {{"f", "{\"a\": 1}"}};
  EXPECT_EQ(message_json(chat).dump(), R"({"role":"assistant","content":"c","reasoning_content":"","tool_calls":[)"
                                       R"({"type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]})");
}

TEST(DecodedChat, AnIncompleteCallStandsBesideTheMessage) {
  DecodedChat chat;
  chat.note(DecodeIssue::UnterminatedToolCalls);
  chat.note(DecodeIssue::MissingEos);
  chat.note(DecodeIssue::UnterminatedToolCalls);
  EXPECT_FALSE(decoded_json(chat).contains("incomplete_tool_call"));
  EXPECT_EQ(decoded_json(chat).at("issues").dump(), R"(["unterminated_tool_calls","missing_eos"])");
  chat.incomplete_call = IncompleteCall{"f", "a", "val"};
  EXPECT_EQ(decoded_json(chat).at("incomplete_tool_call").dump(),
            R"({"name":"f","partial_parameter":"a","partial_value":"val"})");
}

TEST(DecodedChat, IssuesHaveDifferentNames) {
  std::set<std::string_view> names;
  int count = 0;
  for (; count <= static_cast<int>(DecodeIssue::InvalidUtf8); ++count) {
    names.insert(issue_name(static_cast<DecodeIssue>(count)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(count));
  EXPECT_FALSE(names.contains(""));
}

}  // namespace
}  // namespace asterism::data
