#include "asterism/data/chat_decoder.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/data/decoding.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;

const std::string kEnd = "<｜end▁of▁sentence｜>";
const std::string kCall =
    "<｜DSML｜invoke name=\"get_weather\">\n"
    "<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>";
const std::string kBlock = "\n\n<｜DSML｜tool_calls>\n" + kCall + "\n</｜DSML｜tool_calls>";

/// Our name for what the official parser's message begins with.
std::string category_of_reference(const std::string& message) {
  const std::pair<std::string, std::string> heads[] = {
      {"Invalid format: missing EOS", "missing_eos"},
      {"Invalid thinking format: missing", "missing_think_end"},
      {"Unexpected special token", "unexpected_special_token"},
      {"Unexpected content after tool calls", "text_after_tool_calls"},
      {"Tool call format error", "tool_call_format"},
      {"Tool name format error", "tool_name_format"},
      {"Parameter format error", "parameter_format"},
      {"Duplicate parameter name", "duplicate_parameter"},
  };
  for (const auto& [head, category] : heads) {
    if (message.starts_with(head)) return category;
  }
  return "unknown message " + message;
}

DecodeOptions options_of(const Json& item, DecodeMode mode) {
  DecodeOptions options;
  options.thinking_mode = thinking_mode(item.at("thinking_mode").get<std::string>());
  options.mode = mode;
  return options;
}

TEST(ChatDecoder, StrictMessagesAreThoseOfTheReference) {
  const std::vector<Json> cases = decoder_cases("parse_ok.json");
  EXPECT_EQ(cases.size(), 26u);
  for (const Json& item : cases) {
    const auto id = item.at("id").get<std::string>();
    const Json answer = decoded(item.at("text").get<std::string>(), options_of(item, DecodeMode::Strict));
    EXPECT_EQ(answer.value("message", answer), item.at("expected")) << id;
    const bool hole = id.starts_with("hole_") || id == "nested_invoke_becomes_name";
    EXPECT_EQ(answer.at("finished"), !hole) << id;
  }
}

TEST(ChatDecoder, StrictErrorsAreThoseOfTheReference) {
  const std::vector<Json> cases = decoder_cases("parse_errors.json");
  EXPECT_EQ(cases.size(), 27u);
  for (const Json& item : cases) {
    const Json answer = decoded(item.at("text").get<std::string>(), options_of(item, DecodeMode::Strict));
    EXPECT_EQ(answer.value("error", "none"), category_of_reference(item.at("reference_message_head"))) << item.at("id");
  }
}

TEST(ChatDecoder, RecoversTheGoldenCases) {
  const std::vector<Json> cases = decoder_cases("parse_recover_proposal.json");
  EXPECT_EQ(cases.size(), 19u);
  for (const Json& item : cases) {
    const Json answer = decoded(item.at("text").get<std::string>(), options_of(item, DecodeMode::Recover));
    Json expected = {
        {"message", item.at("expected")}, {"finished", item.at("finished")}, {"issues", item.at("issues")}};
    if (item.contains("incomplete_tool_call")) expected["incomplete_tool_call"] = item.at("incomplete_tool_call");
    EXPECT_EQ(answer, expected) << item.at("id");
  }
}

TEST(ChatDecoder, RecoverAgreesWithStrictOnFinishedTexts) {
  for (const GoldenCompletion& completion : golden_completions()) {
    const Json exact = decoded(completion.text, strict(completion.thinking_mode));
    if (!exact.value("finished", false) || !exact.at("issues").empty()) continue;
    EXPECT_EQ(decoded(completion.text, recover(completion.thinking_mode)), exact) << completion.id;
  }
}

// Reports of users about other decoders, by their row in section 14 of encoding-spec.

TEST(ChatDecoderReports, Row11NoMarkupIsContentAndNoPartialCallIsOne) {
  const Json bare = decoded("\n\n" + kCall + kEnd, recover());
  EXPECT_EQ(bare.at("message").at("content"), "");
  EXPECT_EQ(bare.at("message").at("tool_calls").size(), 1u);
  const std::string whole = "Look." + kBlock + kEnd;
  const std::string marker = "｜DSML｜";
  for (size_t size = 0; size < whole.size(); ++size) {
    // The marker is one token: no model's output ends within it.
    const size_t begun = whole.rfind(marker, size);
    if (begun != std::string::npos && begun < size && size < begun + marker.size()) continue;
    const Json cut = decoded(whole.substr(0, size), recover());
    const std::string content = cut.at("message").at("content");
    ASSERT_EQ(content.find("DSML"), std::string::npos) << size;
    const bool closed = size >= whole.find("</｜DSML｜invoke>") + std::string_view("</｜DSML｜invoke>").size();
    ASSERT_EQ(cut.at("message").at("tool_calls").size(), closed ? 1u : 0u) << size;
    ASSERT_EQ(cut.at("finished"), size >= whole.size() - kEnd.size()) << size;
  }
}

TEST(ChatDecoderReports, Row12WithoutToolsACallWithoutABlockIsText) {
  DecodeOptions options = recover();
  options.tools_declared = false;
  const Json answer = decoded("See " + kCall + kEnd, options);
  EXPECT_EQ(answer.at("message").at("content"), "See " + kCall);
  EXPECT_EQ(answer.at("issues").dump(), "[\"unexpected_special_token\"]");
}

TEST(ChatDecoderReports, Row13ACallInTheReasoningIsACall) {
  for (const std::string& text : {"need data" + kBlock + kEnd, "need data\n\n" + kCall + kEnd}) {
    const Json answer = decoded(text, recover(ThinkingMode::Thinking));
    EXPECT_EQ(answer.at("message").at("reasoning_content"), "need data");
    EXPECT_EQ(answer.at("message").at("tool_calls").size(), 1u);
    EXPECT_EQ(answer.at("issues").front(), "tool_block_in_reasoning");
  }
}

TEST(ChatDecoderReports, Row14AnAnswerWithoutThinkEndIsSaidAndHoldsNoEndToken) {
  const Json answer = decoded("just text" + kEnd, recover(ThinkingMode::Thinking));
  EXPECT_EQ(answer.at("message").at("reasoning_content"), "just text");
  EXPECT_EQ(answer.at("issues").dump(), "[\"missing_think_end\"]");
}

std::string arguments_of(const std::string& parameter, DecodeMode mode) {
  DecodeOptions options;
  options.mode = mode;
  const Json answer = decoded("\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter " + parameter +
                                  "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>" + kEnd,
                              options);
  return answer.at("message").at("tool_calls").at(0).at("function").at("arguments");
}

TEST(ChatDecoderReports, Row15TheAttributeDecidesOnTheType) {
  for (const DecodeMode mode : {DecodeMode::Strict, DecodeMode::Recover}) {
    EXPECT_EQ(arguments_of("name=\"zip\" string=\"true\">00123", mode), R"({"zip": "00123"})");
    EXPECT_EQ(arguments_of("name=\"on\" string=\"true\">true", mode), R"({"on": "true"})");
  }
  EXPECT_EQ(arguments_of("name=\"w\" string=\"false\">hello", DecodeMode::Strict), R"({"w": hello})");
  EXPECT_EQ(arguments_of("name=\"w\" string=\"false\">hello", DecodeMode::Recover), R"({"w": "hello"})");
}

TEST(ChatDecoderReports, Row20AParameterNamedArgumentsIsNeverUnwrapped) {
  for (const DecodeMode mode : {DecodeMode::Strict, DecodeMode::Recover}) {
    EXPECT_EQ(arguments_of("name=\"arguments\" string=\"false\">{\"a\": 1}", mode), R"({"arguments": {"a": 1}})");
    EXPECT_EQ(arguments_of("name=\"arguments\" string=\"true\">{\"a\": 1}", mode), R"({"arguments": "{\"a\": 1}"})");
  }
}

TEST(ChatDecoderReports, Row22TheDialectIsAnOptionAndTheWrongOneIsSaid) {
  const std::string spaced = in_v41_tags(kBlock + kEnd);
  DecodeOptions options = recover();
  const Json wrong = decoded(spaced, options);
  EXPECT_EQ(wrong.at("issues").dump(), R"(["unexpected_special_token","other_dialect"])");
  for (const DecodeMode mode : {DecodeMode::Strict, DecodeMode::Recover}) {
    options = {.variant = ChatVariant::V4_1, .mode = mode};
    const Json right = decoded(spaced, options);
    EXPECT_EQ(right.at("message"), decoded(kBlock + kEnd, recover()).at("message"));
    EXPECT_TRUE(right.at("issues").empty());
  }
}

}  // namespace
}  // namespace asterism::data
