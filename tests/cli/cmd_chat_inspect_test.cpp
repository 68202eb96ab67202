#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "asterism/cli/commands.h"
#include "asterism/core/error.h"
#include "tests/cli/training_files.h"
#include "tests/data/tokenizer_files.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using testing::run_asterism;
using testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

constexpr const char* kChat =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "ab"}]})";

/// A folder with a tokenizer whose ids are the bytes, but for ab.
class CmdChatInspect : public ::testing::Test {
 protected:
  CmdChatInspect() {
    auto tokenizer = data::small_tokenizer({{"a", "b"}});
    int id = 257;
    for (const char* token :
         {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "</think>"}) {
      tokenizer.at("added_tokens").push_back(data::added_token(id++, token));
    }
    folder_.write("tokenizer.json", tokenizer.dump());
  }

  ChatInspectArgs args(const std::string& content) const {
    ChatInspectArgs result;
    result.tokenizer = folder_.path();
    result.files = {folder_.write("rows.jsonl", content)};
    result.workers = 1;
    return result;
  }

  static std::string output(const ChatInspectArgs& args) {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run_chat_inspect(args), 0);
    return ::testing::internal::GetCapturedStdout();
  }

  TemporaryFolder folder_;
};

TEST_F(CmdChatInspect, OneRowIsShownWithWhatIsTrained) {
  ChatInspectArgs one = args(std::string("{\"text\": \"x\"}\n") + kChat + "\n");
  one.row = 2;
  const std::string shown = output(one);
  EXPECT_NE(shown.find("rows.jsonl:2, chat: 7 tokens, 2 trained\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("<｜begin▁of▁sentence｜><｜User｜>q<｜Assistant｜></think>⟦ab<｜end▁of▁sentence｜>⟧\n"),
            std::string::npos)
      << shown;
  one.tokens = true;
  EXPECT_NE(output(one).find("q│<｜Assistant｜>│</think>│⟦ab│<｜end▁of▁sentence｜>⟧"), std::string::npos);
}

TEST_F(CmdChatInspect, OneRowAsJson) {
  ChatInspectArgs one = args(std::string(kChat) + "\n");
  one.row = 1;
  one.json = true;
  const Json row = Json::parse(output(one));
  EXPECT_EQ(row.at("kind"), "chat");
  EXPECT_EQ(row.at("samples").at(0).at("trained_tokens"), 2);
  EXPECT_EQ(row.at("samples").at(0).at("ids").size(), 7u);
  EXPECT_EQ(row.at("samples").at(0).at("weights").dump(), "[0.0,0.0,0.0,0.0,0.0,1.0,1.0]");
  EXPECT_EQ(row.at("warnings").size(), 0u);
}

TEST_F(CmdChatInspect, TheFirstRowAndTheTotalsAreShown) {
  const std::string shown = output(args(std::string(kChat) + "\n{\"text\": \"aab\"}\n{bad\n"));
  for (const char* part : {"⟦ab<｜end▁of▁sentence｜>⟧", "rows             3, of which 1 bad", "chat 1, plain-text 1",
                           "tokens           9\n", "trained tokens   3", "invalid_json"}) {
    EXPECT_NE(shown.find(part), std::string::npos) << part << " in\n" << shown;
  }
}

TEST_F(CmdChatInspect, ABadFirstRowDoesNotHideTheTotals) {
  EXPECT_NE(output(args("{bad\n{\"text\": \"aab\"}\n")).find("rows             2, of which 1 bad"), std::string::npos);
}

TEST_F(CmdChatInspect, OptionsReachTheEncoder) {
  const std::string turns = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"},
      {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})";
  std::string line = turns;
  line.erase(line.find('\n'), 1);
  ChatInspectArgs split = args(line + "\n");
  split.json = true;
  EXPECT_EQ(Json::parse(output(split)).at("samples"), 1);
  split.history = "split";
  EXPECT_EQ(Json::parse(output(split)).at("samples"), 2);
  split.thinking = "thinking";
  split.row = 1;
  EXPECT_NE(Json::parse(output(split)).at("samples").at(0).at("text").get<std::string>().find("<think>"),
            std::string::npos);
}

TEST_F(CmdChatInspect, AsAProgramItPrintsOneJsonValueAndTellsWhatItReads) {
  const std::string file = folder_.write("rows.jsonl", std::string(kChat) + "\n");
  const auto result = run_asterism({"chat", "inspect", "--tokenizer", folder_.path(), file, "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(Json::parse(result.out).at("rows"), 1);
  EXPECT_NE(result.err.find(file + ": chat rows in JSON Lines\n"), std::string::npos) << result.err;
}

TEST_F(CmdChatInspect, ParquetIsReadWhereLibtorchIsLoaded) {
  const std::string file = testing::golden("parquet/chats.parquet");
  const auto result = run_asterism({"chat", "inspect", "--tokenizer", folder_.path(), file, "--json"});
  if (result.exit_code == 2 && result.err.find("built without it") != std::string::npos) {
    GTEST_SKIP() << "built without Apache Arrow";
  }
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json summary = Json::parse(result.out);
  EXPECT_EQ(summary.at("kinds").dump(), R"({"chat":300})");
  EXPECT_EQ(summary.at("warnings").at("undeclared_tool").at("rows"), 1);
}

TEST_F(CmdChatInspect, WrongInputIsRefused) {
  ChatInspectArgs wrong = args("{}\n");
  wrong.row = 1;
  EXPECT_NE(error_of<InputError>([&] { run_chat_inspect(wrong); }).find("[unknown_kind]"), std::string::npos);
  wrong.row = 2;
  EXPECT_NE(error_of<InputError>([&] { run_chat_inspect(wrong); }).find("no row 2"), std::string::npos);
  wrong.files = {(folder_ / "missing.jsonl").string()};
  EXPECT_NE(error_of<InputError>([&] { run_chat_inspect(wrong); }).find("missing.jsonl"), std::string::npos);
  EXPECT_EQ(run_asterism({"chat", "inspect", "--tokenizer", folder_.path()}).exit_code, 2);
}

/// The examples of recipes/data: looked at without a finding, and trained on.
class DataRecipes : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string file(const std::string& suffix) {
    return std::string(ASTERISM_SOURCE_DIR) + "/recipes/data/" + GetParam() + suffix;
  }
};

TEST_P(DataRecipes, RowsAreGoodAndFreeOfWarnings) {
  const auto folder = data::v4_tokenizer_folder();
  if (!folder) GTEST_SKIP() << "no DeepSeek-V4 tokenizer here";
  std::vector<std::string> arguments = {"chat", "inspect", "--tokenizer", folder->string(), file(".jsonl"), "--json"};
  if (std::string(GetParam()) == "reasoning") arguments.insert(arguments.end(), {"--history", "split"});
  const auto result = run_asterism(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json summary = Json::parse(result.out);
  EXPECT_EQ(summary.at("rows"), 4);
  EXPECT_EQ(summary.at("bad").dump(), "{}");
  EXPECT_EQ(summary.at("warnings").dump(), "{}");
  EXPECT_GT(summary.at("trained_tokens"), 100);
}

TEST_P(DataRecipes, ATinyModelIsTrainedOnThem) {
  const TrainingFiles files(300);
  const std::string runs = "output=" + (files / "runs").string(), model = "model.path=" + (files / "model").string();
  std::vector<std::string> arguments = {"train", file(".yaml"), "--quiet"};
  for (const std::string& setting : {runs, model, "data.train=" + file(".jsonl"), std::string("train.steps=1"),
                                     std::string("data.sequence_length=8192")}) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  const auto trained = run_asterism(arguments);
  EXPECT_EQ(trained.exit_code, 0) << trained.err;
}

INSTANTIATE_TEST_SUITE_P(All, DataRecipes, ::testing::Values("agent_traces", "reasoning", "documents"));

}  // namespace
}  // namespace asterism::cli
