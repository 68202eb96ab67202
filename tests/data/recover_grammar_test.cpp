#include "asterism/data/recover_grammar.h"

#include <gtest/gtest.h>

#include "tests/data/decoding.h"

namespace asterism::data {
namespace {

using Json = nlohmann::ordered_json;
using Issues = std::vector<std::string>;

const std::string kEnd = "<｜end▁of▁sentence｜>";
const std::string kOpen = "\n\n<｜DSML｜tool_calls>\n";
const std::string kClose = "\n</｜DSML｜tool_calls>";

std::string parameter(const std::string& attributes, const std::string& value) {
  return "<｜DSML｜parameter " + attributes + ">" + value + "</｜DSML｜parameter>";
}

std::string call(const std::string& name, const std::string& parameters = "") {
  return "<｜DSML｜invoke name=\"" + name + "\">\n" + parameters + "\n</｜DSML｜invoke>";
}

std::string in_block(const std::string& calls) {
  return kOpen + calls + kClose + kEnd;
}

Issues issues_of(const Json& answer) {
  return answer.at("issues").get<Issues>();
}

/// The names of the calls, then the arguments of the last one.
Issues calls_of(const Json& answer) {
  Issues found;
  std::string last;
  for (const Json& one : answer.at("message").at("tool_calls")) {
    found.push_back(one.at("function").at("name"));
    last = one.at("function").at("arguments");
  }
  found.push_back(last);
  return found;
}

TEST(RecoverGrammar, ACallThatIsNotClosedIsNone) {
  const std::string half = "<｜DSML｜invoke name=\"f\">\n" + parameter("name=\"a\" string=\"true\"", "v") + "\n";
  // Cut by the end of the text, by the end token, by the next call and by the end of the block.
  for (const auto& [text, issues, finished] :
       {std::tuple<std::string, Issues, bool>{kOpen + half, {"unterminated_tool_calls", "missing_eos"}, false},
        {kOpen + half + kEnd, {"unterminated_tool_calls"}, false},
        {in_block(half + call("g")), {"malformed_tool_call"}, true},
        {in_block(call("g") + "\n" + half.substr(0, half.size() - 1)), {"malformed_tool_call"}, true},
        {kOpen + half + "</｜DSML｜invoke", {"unterminated_tool_calls", "missing_eos"}, false},
        {"\n\n" + half, {"missing_wrapper", "unterminated_tool_calls", "missing_eos"}, false}}) {
    const Json answer = decoded(text, recover());
    EXPECT_EQ(issues_of(answer), issues) << text;
    EXPECT_EQ(answer.at("finished"), finished) << text;
    for (const Json& one : answer.at("message").at("tool_calls")) EXPECT_EQ(one.at("function").at("name"), "g") << text;
  }
}

TEST(RecoverGrammar, ACallWithAnythingBetweenItsTagsIsNone) {
  const std::string good = parameter("name=\"a\" string=\"true\"", "v");
  for (const std::string& parts :
       {good + "rest of the value" + "</｜DSML｜parameter>", parameter("name=\"a\" string=\"true\"", "<｜DSML｜x>"),
        "<｜DSML｜parameter name=\"a\" string=\"true\">1\n" + good, parameter("", "v"), parameter("a=1", "v")}) {
    const Json answer = decoded(in_block(call("f", parts) + "\n" + call("g")), recover());
    EXPECT_EQ(calls_of(answer), (Issues{"g", "{}"})) << parts;
    EXPECT_TRUE(std::ranges::count(issues_of(answer), "malformed_tool_call")) << parts;
  }
}

TEST(RecoverGrammar, ClosedCallsOfABlockThatIsCutAreKept) {
  const Json answer = decoded(kOpen + call("f") + "\n<｜DSML｜invoke na", recover());
  EXPECT_EQ(calls_of(answer), (Issues{"f", "{}"}));
  EXPECT_EQ(answer.at("finished"), false);
  EXPECT_FALSE(answer.contains("incomplete_tool_call"));
}

TEST(RecoverGrammar, SaysWhatWasBeingWritten) {
  const auto incomplete = [](const std::string& text) {
    return decoded(kOpen + "<｜DSML｜invoke name=\"f\">\n" + text, recover()).at("incomplete_tool_call").dump();
  };
  EXPECT_EQ(incomplete(""), R"({"name":"f","partial_parameter":"","partial_value":""})");
  EXPECT_EQ(incomplete("<｜DSML｜parameter na"), R"({"name":"f","partial_parameter":"","partial_value":""})");
  EXPECT_EQ(incomplete("<｜DSML｜parameter name=\"a\" string=\"false\">[1, <"),
            R"({"name":"f","partial_parameter":"a","partial_value":"[1, <"})");
  EXPECT_EQ(incomplete("<｜DSML｜parameter name=\"a\">x</｜DSML｜par"),
            R"({"name":"f","partial_parameter":"a","partial_value":"x"})");
}

TEST(RecoverGrammar, ATagThatIsCutIsNoContent) {
  const Json cut = decoded("text\n\n<｜DSML｜tool_ca", recover());
  EXPECT_EQ(cut.at("message").at("content"), "text");
  EXPECT_EQ(issues_of(cut), (Issues{"unterminated_tool_calls", "missing_eos"}));
  const Json bracket = decoded("if a\n\n<", recover());
  EXPECT_EQ(bracket.at("message").at("content"), "if a\n\n<");
}

TEST(RecoverGrammar, TextAroundCallsIsDroppedAndSaid) {
  EXPECT_EQ(issues_of(decoded(in_block("first\n" + call("f")), recover())), Issues{"text_in_tool_calls"});
  EXPECT_EQ(issues_of(decoded(in_block(call("f") + " \n" + call("g")), recover())), Issues{"layout"});
  EXPECT_EQ(issues_of(decoded("\n\n" + call("f") + " and" + kEnd, recover())),
            (Issues{"missing_wrapper", "text_after_tool_calls"}));
  EXPECT_EQ(issues_of(decoded("a" + kEnd + "b", recover())), Issues{"text_after_eos"});
}

TEST(RecoverGrammar, AWrapperThatOnlyClosesEndsTheCalls) {
  const Json answer = decoded("\n\n" + call("f") + kClose + kEnd, recover());
  EXPECT_EQ(calls_of(answer), (Issues{"f", "{}"}));
  EXPECT_EQ(answer.at("finished"), true);
  EXPECT_EQ(decoded("\n\n" + call("f"), recover()).at("finished"), false);  // another call could follow
}

TEST(RecoverGrammar, ReasoningThatOpensInChatModeStaysReasoning) {
  const Json answer = decoded("<think>r</think>a" + kEnd, recover());
  EXPECT_EQ(answer.at("message").at("reasoning_content"), "r");
  EXPECT_EQ(answer.at("message").at("content"), "a");
  EXPECT_EQ(issues_of(answer), Issues{"leading_think_start"});
}

TEST(RecoverGrammar, OneLeadingThinkStartIsDroppedAndOthersAreText) {
  const Json answer = decoded("<think><think>r</think>a<think>b" + kEnd, recover(ThinkingMode::Thinking));
  EXPECT_EQ(answer.at("message").at("reasoning_content"), "<think>r");
  EXPECT_EQ(answer.at("message").at("content"), "a<think>b");
  EXPECT_EQ(issues_of(answer), (Issues{"leading_think_start", "unexpected_special_token"}));
}

TEST(RecoverGrammar, AttributesDecideOnTheTypeOfAValue) {
  for (const auto& [attributes, value, arguments, issues] :
       {std::tuple<std::string, std::string, std::string, Issues>{
            "name=\"a\" string=\"true\"", "00123", R"({"a": "00123"})", {}},
        {"name=\"a\" string=\"true\"", "{\"b\": 1}", R"({"a": "{\"b\": 1}"})", {}},
        {"name=\"a\" string=\"false\"", "no json", R"({"a": "no json"})", {"invalid_json_value"}},
        {"name=\"a\" string=\"false\"", "\"text\"", R"({"a": "text"})", {}},
        {"name=\"a\"", "\"text\"", R"({"a": "\"text\""})", {"parameter_attribute"}},
        {"name=\"a\"", "[1,2]", R"({"a": [1,2]})", {"parameter_attribute"}},
        {"name=\"a\" string=\"False\"", "7", R"({"a": 7})", {"parameter_attribute"}},
        {"string=\"true\" name=\"a\"", "7", R"({"a": "7"})", {"parameter_attribute"}},
        {"name=\"arguments\" string=\"false\"", "{\"a\": 1}", R"({"arguments": {"a": 1}})", {}}}) {
    const Json answer = decoded(in_block(call("f", parameter(attributes, value))), recover());
    EXPECT_EQ(calls_of(answer), (Issues{"f", arguments}));
    EXPECT_EQ(issues_of(answer), issues) << attributes;
  }
}

TEST(RecoverGrammar, TheLastOfEqualKeysCountsAtThePlaceOfTheFirst) {
  const std::string a1 = parameter("name=\"a\" string=\"false\"", "1"),
                    b = parameter("name=\"b\" string=\"false\"", "2");
  const std::string a3 = parameter("name=\"a\" string=\"false\"", "3");
  EXPECT_EQ(calls_of(decoded(in_block(call("f", a1 + "\n" + b + "\n" + a3)), recover())),
            (Issues{"f", "{\"a\": 3, \"b\": 2}"}));
}

TEST(RecoverGrammar, BytesThatAreNoTextBecomeReplacementCharacters) {
  const Json answer = decoded("a\xff\xe4\xbd" + kEnd, recover());
  EXPECT_EQ(answer.at("message").at("content"), "a\uFFFD\uFFFD");
  EXPECT_EQ(issues_of(answer), Issues{"invalid_utf8"});
  EXPECT_EQ(decoded("a\xe4\xbd", recover()).at("message").at("content"), "a\uFFFD");
}

}  // namespace
}  // namespace asterism::data
