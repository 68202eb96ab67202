#include "asterism/data/row_kind.h"

#include <gtest/gtest.h>

#include "asterism/data/chat_error.h"
#include "tests/data/chat_files.h"

namespace asterism::data {
namespace {

std::string error_of_kind(std::string_view row) {
  try {
    kind_of_row(json(row));
  } catch (const ChatError& error) {
    return error.category() + ": " + error.explanation();
  }
  return "none";
}

TEST(RowKind, OneKeyTellsTheKind) {
  EXPECT_EQ(kind_of_row(json(R"({"messages": []})")), RowKind::Chat);
  EXPECT_EQ(kind_of_row(json(R"({"input_ids": [], "labels": []})")), RowKind::Tokens);
  EXPECT_EQ(kind_of_row(json(R"({"text": "", "messages": null})")), RowKind::Text);
  EXPECT_EQ(kind_of_row(json(R"({"id": 1, "conversations": []})")), RowKind::ShareGpt);
  EXPECT_EQ(kind_of_row(json(R"({"instruction": "", "input": "", "output": ""})")), RowKind::Alpaca);
}

TEST(RowKind, TwoKindsOrNoneAreErrorsThatNameTheKeys) {
  const char* keys[] = {"messages", "input_ids", "text", "conversations", "instruction"};
  for (const char* first : keys) {
    for (const char* second : keys) {
      if (std::string_view(first) == second) continue;
      const std::string error = error_of_kind(text("{\"", first, "\": [], \"", second, "\": []}"));
      EXPECT_TRUE(error.starts_with("ambiguous_kind: ")) << error;
      EXPECT_NE(error.find(first), std::string::npos) << error;
      EXPECT_NE(error.find(second), std::string::npos) << error;
    }
  }
  EXPECT_TRUE(error_of_kind("{}").starts_with("unknown_kind: "));
  const std::string error = error_of_kind(R"({"prompt": "p", "completion": "c"})");
  EXPECT_TRUE(error.starts_with("unknown_kind: ") && error.ends_with("prompt, completion")) << error;
}

TEST(RowKind, EveryKindHasItsNameAndKey) {
  EXPECT_EQ(kind_name(RowKind::Alpaca), "Alpaca");
  EXPECT_EQ(kind_key(RowKind::Tokens), "input_ids");
  EXPECT_TRUE(is_conversation(RowKind::ShareGpt));
  EXPECT_FALSE(is_conversation(RowKind::Text));
}

}  // namespace
}  // namespace asterism::data
