#include "asterism/data/strict_grammar.h"

#include <gtest/gtest.h>

#include "tests/data/decoding.h"

namespace asterism::data {
namespace {

const std::string kEnd = "<｜end▁of▁sentence｜>";
const std::string kOpen = "\n\n<｜DSML｜tool_calls>\n";
const std::string kCall =
    "<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
    "string=\"true\">v</｜DSML｜parameter>\n</｜DSML｜invoke>";
const std::string kClose = "\n</｜DSML｜tool_calls>";

std::string category(const std::string& text, ThinkingMode mode = ThinkingMode::Chat) {
  return decoded(text, strict(mode)).value("error", "none");
}

TEST(StrictGrammar, NamesEachFault) {
  EXPECT_EQ(category("a" + kEnd + "b"), "text_after_eos");
  EXPECT_EQ(category("a" + kEnd + kEnd), "text_after_eos");
  EXPECT_EQ(category(kOpen), "unterminated_tool_calls");
  EXPECT_EQ(category(kOpen + kCall + ">"), "tool_call_format");
  EXPECT_EQ(category(kOpen + kCall + kClose + " "), "text_after_tool_calls");
  EXPECT_EQ(category("r" + kOpen + kCall + kClose, ThinkingMode::Thinking), "missing_think_end");
  EXPECT_EQ(category("a<think>b" + kEnd), "unexpected_special_token");
  EXPECT_EQ(category("a\xff" + kEnd), "invalid_utf8");
}

TEST(StrictGrammar, TheFaultIsTheOneOfTheOfficialParser) {
  // Special tokens are looked for last, although they stand first.
  EXPECT_EQ(category("a<think>b" + kEnd + "c"), "text_after_eos");
  EXPECT_EQ(category("a<think>b"), "missing_eos");
  const std::string twice = "<｜DSML｜parameter name=\"a\" string=\"true\">v</｜DSML｜parameter>";
  EXPECT_EQ(category(kOpen + "<｜DSML｜invoke name=\"f\">\n" + twice + "\n" + twice), "duplicate_parameter");
}

TEST(StrictGrammar, ExplainsWhereAndWhatWasFound) {
  const auto answer = decoded(kOpen + kCall + "\n\n" + kCall, strict());
  const std::string explanation = answer.at("explanation");
  EXPECT_NE(explanation.find("found \">??\""), std::string::npos) << explanation;
  EXPECT_NE(explanation.find("(byte "), std::string::npos) << explanation;
}

struct Hole {
  const char* what;
  std::string text;
};

TEST(StrictGrammar, TakesWhatTheOfficialParserTakesButCallsItUnfinished) {
  const std::string invoke = "<｜DSML｜invoke name=\"f\">\n";
  const std::string tag_in_value =
      "<｜DSML｜parameter name=\"a\" string=\"true\">1\n"
      "<｜DSML｜parameter name=\"b\" string=\"true\">2</｜DSML｜parameter>\n";
  const Hole holes[] = {
      {"the opening marker", "\n\n<｜DSML｜tool_calls"},
      {"an invoke line", kOpen + invoke},
      {"a parameter line", kOpen + invoke + "<｜DSML｜parameter name=\"a\" string=\"true\">v</｜DSML｜parameter>\n"},
      {"the closing tag without its end", kOpen + kCall.substr(0, kCall.size() - 1)},
      {"an invoke in a name", kOpen + "<｜DSML｜invoke name=\"a\">\n" + invoke + "</｜DSML｜invoke>" + kClose + kEnd},
      {"a parameter in a value", kOpen + invoke + tag_in_value + "</｜DSML｜invoke>" + kClose + kEnd},
      {"the end token in a value", kOpen + invoke + "<｜DSML｜parameter name=\"a\" string=\"true\">1" + kEnd +
                                       "</｜DSML｜parameter>\n</｜DSML｜invoke>" + kClose},
  };
  for (const Hole& hole : holes) {
    const auto answer = decoded(hole.text, strict());
    ASSERT_TRUE(answer.contains("message")) << hole.what << ": " << answer;
    EXPECT_EQ(answer.at("finished"), false) << hole.what;
    EXPECT_EQ(answer.at("issues").dump(), "[\"incomplete_tool_calls\"]") << hole.what;
  }
}

TEST(StrictGrammar, TheEndTokenMayBeMissingBehindACompleteBlock) {
  const auto answer = decoded(kOpen + kCall + kClose, strict());
  EXPECT_EQ(answer.at("finished"), true);
  EXPECT_EQ(answer.at("message").at("tool_calls").size(), 1u);
}

TEST(StrictGrammar, NamesTheOtherDialectWhenItsTagsStandInTheText) {
  const std::string spaced = in_v41_tags(kOpen + kCall + kClose + kEnd);
  const std::string explanation = decoded(spaced, strict()).at("explanation");
  EXPECT_NE(explanation.find("another variant"), std::string::npos) << explanation;
}

}  // namespace
}  // namespace asterism::data
