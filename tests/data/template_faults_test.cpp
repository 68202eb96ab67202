// Every fault that was found in a published trainer's template for this encoding, as a sentence that the data path
// keeps. All go in where users come in: the JSON text of a row. docs/known-faults.md lists them.

#include <gtest/gtest.h>

#include <utility>

#include "asterism/data/rows.h"
#include "tests/support/data_files.h"

namespace asterism::data {
namespace {

RowOptions options_of(ChatVariant variant = ChatVariant::V4_0731) {
  RowOptions options;
  options.tokenize = test::tokenize_bytes;
  options.chat.variant = variant;
  return options;
}

struct Written {
  std::string text;
  std::string trained;  // what of it is a target, with the rest as one "|" a stretch
};

std::vector<Written> written(const std::string& row, const RowOptions& options = options_of()) {
  std::vector<Written> result;
  for (const Sample& sample : samples_of_row({row, "f.jsonl:1"}, options)) {
    Written one;
    bool is_trained = true;
    for (size_t t = 0; t < sample.ids.size(); ++t) {
      const bool was_trained = std::exchange(is_trained, sample.weights[t] > 0.0f);
      const char byte = static_cast<char>(sample.ids[t]);
      one.text += byte;
      if (is_trained) one.trained += byte;
      if (was_trained && !is_trained) one.trained += '|';
    }
    result.push_back(std::move(one));
  }
  return result;
}

std::string text_of(const std::string& row, const RowOptions& options = options_of()) {
  return written(row, options).at(0).text;
}

std::string call_with(const std::string& arguments) {
  return text_of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [
      {"type": "function", "function": {"name": "f", "arguments": )" +
                 arguments + "}}]}]}");
}

std::string invocation(const std::string& parameters) {
  return "<｜DSML｜invoke name=\"f\">\n" + parameters + "\n</｜DSML｜invoke>";
}

TEST(TemplateFaults, ArgumentsInJsonTextAreAParameterPerKey) {
  const std::string expected = invocation(
      "<｜DSML｜parameter name=\"city\" string=\"true\">Rome</｜DSML｜parameter>\n"
      "<｜DSML｜parameter name=\"days\" string=\"false\">[1, 2.0]</｜DSML｜parameter>");
  EXPECT_NE(call_with(R"("{\"city\": \"Rome\", \"days\": [1,2.0]}")").find(expected), std::string::npos);
  EXPECT_NE(call_with(R"({"city": "Rome", "days": [1, 2.0]})").find(expected), std::string::npos);
}

TEST(TemplateFaults, ArgumentsThatAreNoObjectOfJsonAreKept) {
  const auto as_text = [](const std::string& value) {
    return invocation("<｜DSML｜parameter name=\"arguments\" string=\"true\">" + value + "</｜DSML｜parameter>");
  };
  EXPECT_NE(call_with(R"("not json")").find(as_text("not json")), std::string::npos);
  EXPECT_NE(call_with(R"("")").find(as_text("")), std::string::npos);
  EXPECT_NE(call_with(R"("[1, 2]")").find(as_text("[1, 2]")), std::string::npos);
  EXPECT_NE(call_with(R"("{}")").find(invocation("")), std::string::npos);
  EXPECT_NE(call_with("{}").find(invocation("")), std::string::npos);
  EXPECT_NE(call_with("null").find(invocation("")), std::string::npos);
}

TEST(TemplateFaults, TheToolsBlockKeepsEveryLineBreak) {
  const std::string text = text_of(R"({"tools": [{"type": "function", "function": {"name": "f", "x": 1}}],
      "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
                   {"role": "assistant", "content": "a"}]})");
  EXPECT_TRUE(
      text.starts_with(R"(<｜begin▁of▁sentence｜>s

## Tools

)"
                       "You have access to a set of tools to help answer the user's question. You can invoke "
                       "tools by writing a \"<｜DSML｜tool_calls>\" block like the following:\n"
                       R"(
<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

)"
                       "String parameters should be specified as is and set `string=\"true\"`. For all other types "
                       "(numbers, booleans, arrays, objects), pass the value in JSON format and set "
                       "`string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by <think>), you MUST output "
                       "your complete reasoning inside <think>...</think> BEFORE any tool calls or final "
                       "response.\n"
                       R"(
Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

{"name": "f", "x": 1}

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
<｜User｜>q)"))
      << text;
}

TEST(TemplateFaults, ToolsBesideTheMessagesMakeNoSecondSystemMessage) {
  const std::string tools = R"("tools": [{"function": {"name": "f"}}], )";
  const std::string answered = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  EXPECT_TRUE(text_of("{" + tools + R"("messages": [{"role": "system", "content": "s"}, )" + answered)
                  .starts_with("<｜begin▁of▁sentence｜>s\n\n## Tools\n"));
  EXPECT_TRUE(
      text_of("{" + tools + R"("messages": [)" + answered).starts_with("<｜begin▁of▁sentence｜>\n\n## Tools\n"));
}

TEST(TemplateFaults, ReasoningIsWrittenAndTrainedUnderEitherName) {
  for (const char* key : {"reasoning_content", "reasoning"}) {
    const auto row =
        written(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", ")" +
                std::string(key) + R"(": "r"}]})");
    EXPECT_TRUE(row.at(0).text.ends_with("<｜Assistant｜><think>r</think>a<｜end▁of▁sentence｜>")) << row.at(0).text;
    EXPECT_EQ(row.at(0).trained, "|r</think>a<｜end▁of▁sentence｜>");
  }
}

TEST(TemplateFaults, TheTaskOfAUserMessageIsWritten) {
  const auto text = [](const std::string& more) {
    return text_of(R"({"messages": [{"role": "user", "content": "q")" + more +
                   R"(}, {"role": "assistant", "content": "a"}]})");
  };
  EXPECT_EQ(text(R"(, "task": "query")"), "<｜begin▁of▁sentence｜><｜User｜>q<｜query｜>a<｜end▁of▁sentence｜>");
  EXPECT_EQ(text(R"(, "task": "action")"),
            "<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think><｜action｜>a<｜end▁of▁sentence｜>");
  // The other keys that were lost there are not written in the official encoding either.
  EXPECT_EQ(text(R"(, "mask": 1, "content_blocks": [{"type": "text", "text": "x"}])"), text(""));
}

TEST(TemplateFaults, EffortsAreThoseOfTheVersion) {
  const auto text = [](const std::string& effort, ChatVariant variant) {
    return text_of(R"({"thinking_mode": "thinking", "reasoning_effort": ")" + effort +
                       R"(", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})",
                   options_of(variant));
  };
  const std::string begin = "<｜begin▁of▁sentence｜>";
  const std::string absolute = begin + "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n";
  const std::string beyond = begin + "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n";
  EXPECT_TRUE(text("low", ChatVariant::V4_0731).starts_with(begin + "<｜User｜>"));
  EXPECT_TRUE(text("high", ChatVariant::V4_0731).starts_with(absolute));
  EXPECT_TRUE(text("max", ChatVariant::V4_0731).starts_with(beyond));
  EXPECT_TRUE(text("high", ChatVariant::V4Preview).starts_with(begin + "<｜User｜>"));
  EXPECT_EQ(text("none", ChatVariant::V4Preview), text("high", ChatVariant::V4Preview));
  EXPECT_TRUE(text("max", ChatVariant::V4Preview).starts_with(absolute));
}

TEST(TemplateFaults, ListContentOfAToolIsWholeNotItsFirstPart) {
  const std::string text = text_of(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "one"},
          {"type": "text", "text": "two"}, {"type": "image_url"}]},
      {"role": "assistant", "content": "a"}]})");
  EXPECT_NE(text.find("<tool_result>one\n\ntwo\n\n[Unsupported image_url]</tool_result>"), std::string::npos) << text;
}

/// There, as many tokens of the second question were trained as the reasoning that was left out was long.
TEST(TemplateFaults, ReasoningThatIsLeftOutMovesNoTargetIntoTheNextQuestion) {
  const std::string begin = R"({"thinking_mode": "thinking", "history": ")";
  const std::string turns = R"(", "messages": [{"role": "user", "content": "Tell me about one."},
      {"role": "assistant", "reasoning_content": "Thinking about one.", "content": "First answer."},
      {"role": "user", "content": "And now please tell me about two, three and four?"},
      {"role": "assistant", "reasoning_content": "Thinking about two.", "content": "Second answer."}]})";
  const std::string eos = "<｜end▁of▁sentence｜>", last = "|Thinking about two.</think>Second answer." + eos;
  const auto all = written(begin + "all" + turns);
  EXPECT_EQ(all.at(0).trained, "|First answer." + eos + last);
  EXPECT_EQ(all.at(0).text,
            "<｜begin▁of▁sentence｜><｜User｜>Tell me about one.<｜Assistant｜></think>First answer." + eos +
                "<｜User｜>And now please tell me about two, three and four?<｜Assistant｜><think>Thinking about two."
                "</think>Second answer." +
                eos);
  EXPECT_EQ(written(begin + "auto" + turns).at(0).trained, last);
  const auto split = written(begin + "split" + turns);
  ASSERT_EQ(split.size(), 2u);
  EXPECT_EQ(split[0].trained, "|Thinking about one.</think>First answer." + eos);
  EXPECT_EQ(split[1].trained, last);
}

TEST(TemplateFaults, ContextAndABeginTokenThatIsNotWantedCanBeSaid) {
  const std::string question = R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a"})";
  const std::string turn = "<｜User｜>q<｜Assistant｜></think>a<｜end▁of▁sentence｜>";
  EXPECT_EQ(text_of(R"({"add_bos": false, "messages": [)" + question + "]}"), turn);
  EXPECT_EQ(text_of(R"({"context": [)" + question + R"(], "messages": [)" + question + "]}"), turn);
}

TEST(TemplateFaults, AConversationIsTokenizedOnceHoweverManyTurnsItHas) {
  RowOptions options = options_of();
  size_t calls = 0, bytes = 0;
  options.tokenize = [&](std::string_view text, std::span<const ByteRange> as_text, std::vector<int64_t>& ids,
                         std::vector<size_t>& ends) {
    ++calls;
    bytes += text.size();
    test::tokenize_bytes(text, as_text, ids, ends);
  };
  std::string messages;
  for (size_t turns = 1; turns <= 12; ++turns) {
    messages += std::string(turns == 1 ? "" : ", ") +
                R"({"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "reasoning_content": "r"})";
    calls = bytes = 0;
    const auto rows = written(R"({"messages": [)" + messages + "]}", options);
    EXPECT_EQ(calls, 1u);
    EXPECT_EQ(bytes, rows.at(0).text.size());
  }
  calls = 0;
  EXPECT_EQ(written(R"({"history": "split", "messages": [)" + messages + "]}", options).size(), 12u);
  EXPECT_EQ(calls, 12u);
}

}  // namespace
}  // namespace asterism::data
