#include "asterism/data/rows.h"

#include <gtest/gtest.h>

#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

RowOptions byte_options() {
  RowOptions options;
  options.tokenize = test::tokenize_bytes;
  options.vocab_size = 256;
  return options;
}

std::vector<Sample> samples(std::string_view row, const RowOptions& options = byte_options()) {
  return samples_of_row({row, "f.jsonl:3"}, options);
}

std::string category(std::string_view row, const RowOptions& options = byte_options()) {
  try {
    samples(row, options);
  } catch (const RowError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("f.jsonl:3: [" + error.category() + "]")) << error.what();
    return error.category();
  }
  return "none";
}

std::string text_of(const Sample& sample) {
  return {sample.ids.begin(), sample.ids.end()};
}

constexpr const char* kThinkingRow = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "reasoning": "r"}]})";
constexpr const char* kChatRow =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";

TEST(Rows, EveryBadRowHasItsCategory) {
  const std::pair<const char*, std::string> cases[] = {
      {"invalid_json", R"({"text": "x")"},
      {"invalid_json", R"({"text": "x"} {"text": "y"})"},
      {"invalid_json", "{'text': 'x'}"},
      {"lone_surrogate", R"({"text": "\ud800"})"},
      {"nul_byte", std::string("{\"text\": \"\0\"}", 13)},
      {"nul_byte", std::string(100, '\0')},
      {"duplicate_key", R"({"text": "x", "text": "y"})"},
      {"duplicate_key", R"({"text": "x", "meta": [{"a": 1, "b": 2, "\u0061": 3}]})"},
      {"invalid_json", "{\"text\": \"a\tb\"}"},
      {"invalid_json", R"({"text": "x", "score": 01})"},
      {"invalid_json", ""},
      {"invalid_utf8", "{\"text\": \"\xFF\"}"},
      {"too_deep", R"({"text": "x", "meta": )" + std::string(100000, '[') + std::string(100000, ']') + "}"},
      {"not_an_object", "[1, 2]"},
      {"not_an_object", "\"text\""},
      {"unknown_kind", "{}"},
      {"unknown_kind", R"({"prompt": "x", "completion": "y"})"},
      {"unknown_kind", R"({"text": null})"},
      {"ambiguous_kind", R"({"text": "x", "input_ids": [1]})"},
      {"ambiguous_kind", R"({"messages": [], "text": "x"})"},
      {"empty_row", R"({"conversations": []})"},
      {"invalid_conversations", R"({"conversations": [{"from": "narrator", "value": "x"}]})"},
      {"invalid_alpaca", R"({"instruction": "x"})"},
      {"invalid_tools", R"({"messages": [{"role": "user", "content": "x"}], "tools": "[{"})"},
      {"unsupported_feature", R"({"messages": [{"role": "user", "content": "x"}], "images": ["a.png"]})"},
      {"empty_row", R"({"text": ""})"},
      {"empty_row", R"({"input_ids": []})"},
      {"empty_row", R"({"messages": []})"},
      {"invalid_content", R"({"text": 5})"},
      {"invalid_ids", R"({"input_ids": "1 2"})"},
      {"invalid_ids", R"({"input_ids": [1, 2.0]})"},
      {"invalid_ids", R"({"input_ids": [1, "2"]})"},
      {"invalid_ids", R"({"input_ids": [1, true]})"},
      {"invalid_ids", R"({"input_ids": [-1]})"},
      {"invalid_ids", R"({"input_ids": [18446744073709551615]})"},
      {"invalid_ids", R"({"input_ids": [1], "labels": [null]})"},
      {"length_mismatch", R"({"input_ids": [1, 2], "labels": [1]})"},
      {"length_mismatch", R"({"input_ids": [1, 2], "attention_mask": [1]})"},
      {"padded_row", R"({"input_ids": [1, 2], "attention_mask": [1, 0]})"},
      {"label_mismatch", R"({"input_ids": [1, 2], "labels": [1, 3]})"},
      {"invalid_messages", R"({"messages": "hi"})"},
      {"unknown_role", R"({"messages": [{"role": "human", "content": "x"}]})"},
      {"consecutive_assistants",
       R"({"messages": [{"role": "assistant", "content": "x"}, {"role": "assistant", "content": "y"}]})"},
      {"bad_tool", R"({"messages": [{"role": "user", "content": "x"}], "tools": [{}]})"},
      {"unknown_role", R"({"messages": [{"role": "user", "content": "x"}], "context": [{}]})"},
      {"invalid_thinking_mode", R"({"messages": [{"role": "user", "content": "x"}], "thinking_mode": true})"},
      {"invalid_option", R"({"messages": [{"role": "user", "content": "x"}], "drop_thinking": "no"})"},
      {"invalid_thinking_mode", R"({"messages": [{"role": "user", "content": "x"}], "thinking_mode": "on"})"},
      {"invalid_reasoning_effort", R"({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "mid"})"},
      {"invalid_history", R"({"messages": [{"role": "user", "content": "x"}], "history": "none"})"},
  };
  for (const auto& [expected, row] : cases) EXPECT_EQ(category(row), expected) << row.substr(0, 200);
}

TEST(Rows, ForeignConversationsAreThoseOfChatRows) {
  const std::string expected = text_of(samples(kChatRow).at(0));
  EXPECT_EQ(
      text_of(samples(R"({"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]})").at(0)),
      expected);
  EXPECT_EQ(text_of(samples(R"({"instruction": "q", "input": "", "output": "a"})").at(0)), expected);
  EXPECT_EQ(text_of(samples(R"({"messages": "[{\"role\": \"user\", \"content\": \"q\"}, )"
                            R"({\"role\": \"assistant\", \"content\": \"a\"}]"})")
                        .at(0)),
            expected);
}

TEST(Rows, ARowThatIsTooLongIsABadRow) {
  RawRow row{.text = "{\"text\": \"xxx", .origin = "f.jsonl:3"};
  row.too_long = true;
  try {
    samples_of_row(row, byte_options());
    FAIL();
  } catch (const RowError& error) {
    EXPECT_EQ(error.category(), "too_long");
  }
}

TEST(Rows, ErrorShowsTheFirstCharactersOnly) {
  const std::string row = "{\"text\": 5, \"filler\": \"" + std::string(5000, 'x') + "\"}";
  try {
    samples(row);
    FAIL();
  } catch (const RowError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(row.substr(0, 200) + "..."), std::string::npos) << message;
    EXPECT_LT(message.size(), 400u);
  }
}

TEST(Rows, ShiftedLabelsAreRecognised) {
  try {
    samples(R"({"input_ids": [5, 6, 7], "labels": [6, 7, -100]})");
    FAIL();
  } catch (const RowError& error) {
    EXPECT_NE(std::string(error.what()).find("shifted"), std::string::npos) << error.what();
  }
}

TEST(Rows, TokenRowsKeepIdsAndMask) {
  RowOptions options;  // needs no tokenizer
  const auto masked =
      samples(R"({"input_ids": [5, 6, 7], "labels": [-100, 6, -100], "attention_mask": [1, 1, 1]})", options);
  EXPECT_EQ(masked.at(0).ids, (std::vector<int64_t>{5, 6, 7}));
  EXPECT_EQ(masked[0].weights, (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(samples(R"({"input_ids": [5, 6]})", options).at(0).weights, (std::vector<float>{1, 1}));
}

TEST(Rows, TextRowsTrainEveryTokenAndAddNone) {
  const Sample sample = samples(R"({"text": "a\nb"})").at(0);
  EXPECT_EQ(text_of(sample), "a\nb");
  EXPECT_EQ(sample.weights, std::vector<float>(3, 1.0f));
}

TEST(Rows, ThinkingFollowsRowAndOptions) {
  const auto thinks = [](const std::string& row, Thinking choice) {
    RowOptions options = byte_options();
    options.thinking = choice;
    return text_of(samples(row, options).at(0)).find("<think>") != std::string::npos;
  };
  const std::string own_chat = std::string(R"({"thinking_mode": "chat", )") + (kThinkingRow + 1);
  const std::string own_thinking = std::string(R"({"thinking_mode": "thinking", )") + (kChatRow + 1);
  EXPECT_TRUE(thinks(kThinkingRow, Thinking::Auto));
  EXPECT_FALSE(thinks(kChatRow, Thinking::Auto));
  EXPECT_FALSE(thinks(own_chat, Thinking::Auto));
  EXPECT_TRUE(thinks(own_thinking, Thinking::Auto));
  EXPECT_FALSE(thinks(kThinkingRow, Thinking::Chat));
  EXPECT_TRUE(thinks(own_chat, Thinking::Thinking));
}

TEST(Rows, OptionsOfTheRowWin) {
  const auto encode = [](const char* option) {
    return text_of(samples(std::string("{") + option + (kThinkingRow + 1)).at(0));
  };
  EXPECT_NE(encode(R"("reasoning_effort": "max", )").find("Reasoning Effort"), std::string::npos);
  EXPECT_TRUE(encode(R"("add_bos": false, )").starts_with("<｜User｜>"));
  const std::string turns = R"({"history": "split", "messages": [
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_EQ(samples(turns).size(), 2u);
}

TEST(Rows, TextWithoutTokenizerIsAnError) {
  EXPECT_THROW(samples(R"({"text": "x"})", {}), InputError);
  EXPECT_THROW(samples(kChatRow, {}), InputError);
}

}  // namespace
}  // namespace asterism::data
