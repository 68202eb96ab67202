#include "asterism/data/stream_decoder.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/data/decoding.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;
using Pieces = std::vector<std::string_view>;

const std::string kEnd = "<｜end▁of▁sentence｜>";
const std::string kBlock =
    "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n"
    "<｜DSML｜parameter name=\"a\" string=\"true\">v</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
    "</｜DSML｜tool_calls>";

Pieces pieces_of(std::string_view text, size_t size) {
  Pieces pieces;
  for (size_t at = 0; at < text.size(); at += size) pieces.push_back(text.substr(at, size));
  return pieces;
}

/// What the deltas amount to.
struct Joined {
  DecodedChat chat;
  void operator()(const ChatDelta& delta) {
    if (delta.kind == ChatDelta::Kind::Reasoning) chat.reasoning_content += delta.text;
    if (delta.kind == ChatDelta::Kind::Content) chat.content += delta.text;
    if (delta.kind == ChatDelta::Kind::ToolCall) chat.tool_calls.push_back(delta.call);
  }
};

void for_each_way_to_decode(const std::function<void(const std::string& text, const DecodeOptions& options)>& check) {
  std::vector<GoldenCompletion> completions = golden_completions();
  completions.push_back({"invalid_utf8", "a\xe4\xbd\xff\xe4\xbd\xa0\xc3", ThinkingMode::Chat});
  for (const GoldenCompletion& completion : completions) {
    for (const ThinkingMode thinking : {completion.thinking_mode, ThinkingMode::Thinking}) {
      for (const DecodeMode mode : {DecodeMode::Strict, DecodeMode::Recover}) {
        for (const ChatVariant variant : {ChatVariant::V4_0731, ChatVariant::V4_1}) {
          for (const bool tools : {true, false}) {
            const DecodeOptions options = {variant, thinking, mode, tools};
            check(variant == ChatVariant::V4_1 ? in_v41_tags(completion.text) : completion.text, options);
          }
        }
      }
    }
  }
}

TEST(StreamDecoder, EverySplitGivesTheSame) {
  for_each_way_to_decode([](const std::string& text, const DecodeOptions& options) {
    const Json whole = decoded(text, options);
    const std::string_view view = text;
    for (size_t at = 0; at <= text.size(); ++at) {
      ASSERT_EQ(decoded_from(Pieces{view.substr(0, at), view.substr(at)}, options), whole)
          << text << "\nsplit at " << at;
    }
    for (const size_t size : {1, 2, 3, 5, 17}) {
      ASSERT_EQ(decoded_from(pieces_of(text, size), options), whole) << text << "\nin pieces of " << size;
    }
  });
}

TEST(StreamDecoder, DeltasJoinedAreTheMessage) {
  for_each_way_to_decode([](const std::string& text, const DecodeOptions& options) {
    Joined joined;
    const Json answer = decoded_from(pieces_of(text, 1), options, std::ref(joined));
    if (answer.contains("error")) return;
    ASSERT_EQ(message_json(joined.chat), answer.at("message")) << text;
  });
}

TEST(StreamDecoder, ShowsTextAsSoonAsNothingCanChangeIt) {
  std::string shown;
  StreamDecoder decoder(recover(), [&](const ChatDelta& delta) { shown += delta.text; });
  decoder.feed("Hi");
  EXPECT_EQ(shown, "Hi");
  decoder.feed("! \xe4\xbd");  // the beginning of a character
  EXPECT_EQ(shown, "Hi! ");
  decoder.feed("\xa0\n\n<");  // perhaps the beginning of a block
  EXPECT_EQ(shown, "Hi! 你");
  decoder.feed("b");
  EXPECT_EQ(shown, "Hi! 你\n\n<b");
  decoder.feed("<｜end▁of");
  EXPECT_EQ(shown, "Hi! 你\n\n<b");
  decoder.feed("▁sentence｜>");
  EXPECT_EQ(shown, "Hi! 你\n\n<b");
  EXPECT_TRUE(decoder.finish().finished);
}

TEST(StreamDecoder, ShowsACallWhenItIsClosedAndNoMarkupEver) {
  for (const DecodeOptions& options : {strict(), recover()}) {
    Joined joined;
    StreamDecoder decoder(options, std::ref(joined));
    const std::string text = "Look:" + kBlock + kEnd;
    const size_t closed = text.find("</｜DSML｜invoke>") + std::string_view("</｜DSML｜invoke>").size();
    for (size_t at = 0; at < text.size(); ++at) {
      decoder.feed(std::string_view(text).substr(at, 1));
      // Strict mode does not wait for the ">" of the closing tag: the official parser does not either.
      const size_t slack = options.mode == DecodeMode::Strict ? 1 : 0;
      ASSERT_EQ(joined.chat.tool_calls.size(), at + 1 >= closed - slack ? 1u : 0u) << at;
      ASSERT_EQ(joined.chat.content.find('<'), std::string::npos) << at;
    }
    EXPECT_EQ(joined.chat.content, "Look:");
    EXPECT_EQ(decoder.finish().tool_calls.at(0).arguments, "{\"a\": \"v\"}");
  }
}

TEST(StreamDecoder, StrictModeFailsAsSoonAsTheTextIsWrong) {
  StreamDecoder decoder(strict(ThinkingMode::Thinking));
  decoder.feed("reasons\n\n<｜DSML｜tool_cal");
  EXPECT_THROW(decoder.feed("ls"), ChatError);
}

TEST(StreamDecoder, NamesTheByteThatIsNotText) {
  for (const size_t size : {1, 100}) {
    const Json answer = decoded_from(pieces_of("ab\xe4\xbd\xa0\xff", size), strict());
    EXPECT_EQ(answer.at("error"), "invalid_utf8");
    EXPECT_EQ(answer.at("explanation"), "byte 5 of the completion is not UTF-8");
  }
}

/// Texts that are nearly something all the time; a decoder that looked back would take hours for them.
TEST(StreamDecoder, LongHostileTextsTakeLinearTime) {
  std::string headers = "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n";
  for (int i = 0; i < 10000; ++i) {
    headers += "<｜DSML｜parameter name=\"" + std::to_string(i) + "\" string=\"false\">1</｜DSML｜parameter>\n";
  }
  const auto repeated = [](std::string_view start, std::string_view unit) {
    std::string text(start);
    while (text.size() < 1'000'000) text += unit;
    return text;
  };
  const std::string texts[] = {
      headers,
      repeated("", "\n"),
      repeated("", "<｜DSML｜"),
      repeated("", "\n\n<｜DSML｜tool_call"),
      repeated("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"", "\" string=\""),
      repeated("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter", " name=\"a\""),
      repeated("\n\n<｜DSML｜tool_calls>\n", "<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n"),
      repeated("", "<think>"),
      repeated("", "</think>"),
      repeated("", "\xff"),
  };
  for (const std::string& text : texts) {
    for (const DecodeMode mode : {DecodeMode::Strict, DecodeMode::Recover}) {
      DecodeOptions options;
      options.mode = mode;
      EXPECT_EQ(decoded(text, options), decoded_from(pieces_of(text, 7), options)) << text.substr(0, 80);
    }
  }
}

}  // namespace
}  // namespace asterism::data
