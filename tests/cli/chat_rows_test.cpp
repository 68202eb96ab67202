#include "asterism/cli/chat_rows.h"

#include <gtest/gtest.h>

#include "asterism/data/rows.h"
#include "tests/support/data_files.h"

namespace asterism::cli {
namespace {

using Json = nlohmann::ordered_json;

Json encode(const std::string& row, const data::ChatDefaults& defaults = {}) {
  return encode_chat_row(data::parse_row({row, "", false}), defaults, test::tokenize_bytes);
}

std::string category(const std::string& row) {
  try {
    encode(row);
  } catch (const data::ChatError& error) {
    return error.category();
  }
  return "no error";
}

std::string trained_text(const Json& encoded) {
  std::string trained;
  for (size_t i = 0; i < encoded.at("ids").size(); ++i) {
    if (encoded.at("weights")[i] > 0) trained.push_back(static_cast<char>(encoded.at("ids")[i].get<int>()));
  }
  return trained;
}

const std::string kTwoTurns =
    R"("messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "one"},
                    {"role": "user", "content": "2"}, {"role": "assistant", "content": "two"}])";

TEST(ChatRows, GivesTextIdsAndWeightsOfOneLength) {
  const Json encoded = encode("{" + kTwoTurns + "}");
  EXPECT_EQ(encoded.at("text").get<std::string>().size(), encoded.at("ids").size());
  EXPECT_EQ(encoded.at("ids").size(), encoded.at("weights").size());
  EXPECT_EQ(trained_text(encoded), "one<｜end▁of▁sentence｜>two<｜end▁of▁sentence｜>");
}

TEST(ChatRows, OptionsOfTheRowWinOverTheDefaults) {
  data::ChatDefaults defaults;
  defaults.loss.history = data::History::All;
  EXPECT_EQ(trained_text(encode("{\"history\": \"last_turn\", " + kTwoTurns + "}", defaults)),
            "two<｜end▁of▁sentence｜>");
  const std::string with_bos = encode("{" + kTwoTurns + "}").at("text");
  const std::string without = encode("{\"add_bos\": false, " + kTwoTurns + "}").at("text");
  EXPECT_EQ("<｜begin▁of▁sentence｜>" + without, with_bos);
  const std::string thinking = encode("{\"thinking_mode\": \"thinking\", " + kTwoTurns + "}").at("text");
  EXPECT_NE(thinking.find("<think>"), std::string::npos);
  EXPECT_EQ(with_bos.find("<think>"), std::string::npos);
}

TEST(ChatRows, ReasoningInARowMakesItAThinkingRow) {
  const std::string text = encode(R"({"messages": [{"role": "user", "content": "1"},
      {"role": "assistant", "reasoning_content": "hm", "content": "one"}]})")
                               .at("text");
  EXPECT_NE(text.find("<think>hm</think>one"), std::string::npos) << text;
}

TEST(ChatRows, SplitGivesASamplePerTurn) {
  const Json encoded = encode("{\"history\": \"split\", " + kTwoTurns + "}");
  ASSERT_EQ(encoded.at("samples").size(), 2u);
  EXPECT_EQ(trained_text(encoded.at("samples")[0]), "one<｜end▁of▁sentence｜>");
  EXPECT_EQ(trained_text(encoded.at("samples")[1]), "two<｜end▁of▁sentence｜>");
}

TEST(ChatRows, NamesWhatIsWrong) {
  EXPECT_EQ(category("{\"text\": \"a\"}"), "unknown_kind");
  EXPECT_EQ(category("{\"tools\": [{}], " + kTwoTurns + "}"), "bad_tool");
  EXPECT_EQ(category("{\"context\": [{}], " + kTwoTurns + "}"), "unknown_role");
  EXPECT_EQ(category("{\"add_bos\": 1, " + kTwoTurns + "}"), "invalid_option");
  EXPECT_EQ(category("{\"history\": 1, " + kTwoTurns + "}"), "invalid_history");
  EXPECT_EQ(category("{\"history\": \"some\", " + kTwoTurns + "}"), "invalid_history");
  EXPECT_EQ(category("{" + kTwoTurns), "invalid_json");
  EXPECT_EQ(category("[1]"), "not_an_object");
  EXPECT_EQ(category("{\"a\": \"\xff\"}"), "invalid_utf8");
  EXPECT_EQ(category(std::string(1000, '[') + std::string(1000, ']')), "too_deep");
  EXPECT_EQ(category("{\"a\": \"" + std::string(1000, '[') + "\"}"), "unknown_kind");
}

TEST(ChatRows, AnErrorSaysWhichMessage) {
  EXPECT_EQ(error_row(data::ChatError("bad_role", 3, "no such role")).dump(),
            R"({"error":{"category":"bad_role","message":"message 3: no such role","message_index":3}})");
  EXPECT_EQ(error_row(data::ChatError("bad", std::nullopt, "x")).dump(),
            R"({"error":{"category":"bad","message":"x","message_index":null}})");
}

}  // namespace
}  // namespace asterism::cli
