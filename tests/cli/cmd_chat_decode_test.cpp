#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "asterism/cli/commands.h"
#include "tests/data/tokenizer_files.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using testing::run_asterism;
using Json = nlohmann::ordered_json;

const std::string kEnd = "<｜end▁of▁sentence｜>";

std::string row(const std::string& text, const std::string& thinking_mode, const Json& more = Json::object()) {
  Json object = {{"text", text}, {"thinking_mode", thinking_mode}};
  object.update(more);
  return object.dump() + "\n";
}

std::vector<Json> decode(const std::string& rows, ChatDecodeArgs args = {}) {
  const testing::TemporaryFolder folder;
  args.file = folder.write("rows.jsonl", rows);
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_chat_decode(args), 0);
  std::vector<Json> answers;
  std::istringstream lines(::testing::internal::GetCapturedStdout());
  for (std::string line; std::getline(lines, line);) answers.push_back(Json::parse(line));
  return answers;
}

TEST(CmdChatDecode, AnswersEveryRowInOrder) {
  const auto answers = decode(row("r</think>a" + kEnd, "thinking") + row("a", "chat") + "not json\n" +
                              row("a" + kEnd, "sometimes") + "{\"text\": \"a\"}\n{\"thinking_mode\": \"chat\"}\n");
  ASSERT_EQ(answers.size(), 6u);
  EXPECT_EQ(answers[0].dump(), R"({"message":{"role":"assistant","content":"a","reasoning_content":"r",)"
                               R"("tool_calls":[]},"finished":true,"issues":[]})");
  EXPECT_EQ(answers[1].at("error").at("category"), "missing_eos");
  EXPECT_EQ(answers[1].at("error").at("message_index"), nullptr);
  EXPECT_EQ(answers[2].at("error").at("category"), "invalid_json");
  EXPECT_EQ(answers[3].at("error").at("category"), "invalid_thinking_mode");
  EXPECT_EQ(answers[4].at("error").at("category"), "invalid_thinking_mode");
  EXPECT_EQ(answers[5].at("error").at("category"), "invalid_content");
}

TEST(CmdChatDecode, RecoverKnowsWhetherToolsWereDeclared) {
  const std::string call = "\n\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>" + kEnd;
  const auto answers = decode(row(call, "chat") + row(call, "chat", {{"tools", Json::array()}}) +
                                  row(call, "chat", {{"tools", Json::array()}, {"tools_declared", true}}) +
                                  row(call, "chat", {{"tools_declared", 1}}),
                              {.recover = true});
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[0].at("message").at("tool_calls").size(), 1u);
  EXPECT_EQ(answers[1].at("message").at("tool_calls").size(), 0u);
  EXPECT_EQ(answers[2].at("message").at("tool_calls").size(), 1u);
  EXPECT_EQ(answers[3].at("error").at("category"), "invalid_option");
}

TEST(CmdChatDecode, ReadsTheDialectOfTheVariantFromStdin) {
  const std::string text = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const auto result = run_asterism({"chat", "decode", "--variant", "v4.1"}, row(text, "chat"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("message").at("tool_calls").at(0).at("function").at("name"), "f");
  const auto wrong = run_asterism({"chat", "decode"}, row(text, "chat"));
  EXPECT_EQ(Json::parse(wrong.out).at("error").at("category"), "missing_eos");
  EXPECT_EQ(run_asterism({"chat", "decode", "--variant", "v5"}, "").exit_code, 2);
}

TEST(CmdChatDecode, TheFolderOfTheModelDecidesTheDialect) {
  const testing::TemporaryFolder folder;
  folder.write("tokenizer.json", data::small_tokenizer({}).dump());
  folder.write("chat_template.jinja", "<｜System｜>");
  const std::string text = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const auto answer = [&](const std::string& variant) {
    return decode(row(text, "chat"), {.variant = variant, .tokenizer = folder.path()}).at(0);
  };
  EXPECT_EQ(answer("auto").at("message").at("tool_calls").size(), 1u);
  EXPECT_EQ(answer("v4-0731").at("error").at("category"), "missing_eos");
  EXPECT_EQ(run_asterism({"chat", "decode", "--tokenizer", folder / "absent"}, "").exit_code, 2);
}

}  // namespace
}  // namespace asterism::cli
