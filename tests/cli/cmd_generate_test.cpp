#include <gtest/gtest.h>

#include "asterism/cli/command_line.h"
#include "asterism/core/error.h"
#include "asterism/data/tokenizer.h"
#include "tests/cli/training_files.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using Json = nlohmann::ordered_json;

/// A model of 300 tokens whose tokenizer knows 256.
class CmdGenerate : public ::testing::Test {
 protected:
  GenerateArgs args(const std::string& prompt) const {
    return {.model = files_ / "model", .prompt = prompt, .max_tokens = 6, .json = true};
  }

  std::string output(const GenerateArgs& args) const {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run_generate(args), 0);
    return ::testing::internal::GetCapturedStdout();
  }

  std::vector<Json> answers(const GenerateArgs& args) const {
    std::vector<Json> all;
    std::istringstream lines(output(args));
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }

  std::string refusal_of_file(const std::string& content) const {
    GenerateArgs file = args("");
    file.messages = files_.folder().write("chats.jsonl", content);
    return error_of<InputError>([&] { run_generate(file); });
  }

  TrainingFiles files_{300};
};

TEST_F(CmdGenerate, PrintsTheKeysOfTheInterface) {
  const auto all = answers(args("hello"));
  ASSERT_EQ(all.size(), 1u);
  const Json& answer = all.front();
  const auto ids = answer.at("ids").get<std::vector<int64_t>>();
  ASSERT_EQ(ids.size(), 6u);
  ASSERT_EQ(answer.at("log_probabilities").size(), ids.size());
  for (const double value : answer.at("log_probabilities")) EXPECT_LT(value, 0.0);
  EXPECT_EQ(answer.at("finished"), false);
  EXPECT_EQ(answer.at("message"), (Json{{"role", "assistant"},
                                        {"content", answer.at("text")},
                                        {"reasoning_content", ""},
                                        {"tool_calls", Json::array()}}));
  EXPECT_EQ(answer.at("issues"), Json::array({"missing_eos"}));
  EXPECT_EQ(answers(args("hello")), all);
}

TEST_F(CmdGenerate, StreamsTheTextThatJsonHolds) {
  GenerateArgs plain = args("hello");
  const std::string text = answers(plain).front().at("text");
  plain.json = false;
  EXPECT_EQ(output(plain), text + "\n");
}

TEST_F(CmdGenerate, AnAdapterChangesTheAnswer) {
  run_train({.recipe = files_.recipe(kSmallLora)});
  GenerateArgs adapted = args("hello");
  adapted.adapter = files_.run("adapter");
  EXPECT_NE(answers(adapted).front().at("log_probabilities"), answers(args("hello")).front().at("log_probabilities"));
}

TEST_F(CmdGenerate, AnIdWithoutATokenShowsAsReplacement) {
  GenerateArgs wild = args("hello");
  wild.temperature = 100.0;  // nearly uniform: every seventh id is none of the tokenizer's
  wild.max_tokens = 40;
  const Json answer = answers(wild).front();
  const auto ids = answer.at("ids").get<std::vector<int64_t>>();
  ASSERT_TRUE(std::ranges::any_of(ids, [](int64_t id) { return id >= 256; }));
  EXPECT_NE(answer.at("text").get<std::string>().find("\uFFFD"), std::string::npos);
}

TEST_F(CmdGenerate, AnswersEveryConversationOfAFile) {
  GenerateArgs file = args("");
  file.messages = files_.folder().write("chats.jsonl",
                                        "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}\n\n"
                                        "[{\"role\": \"user\", \"content\": \"other\"}]\n"
                                        "{\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}], "
                                        "\"thinking_mode\": \"thinking\"}\n");
  const auto all = answers(file);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0], answers(args("hello")).front());
  EXPECT_NE(all[1].at("log_probabilities"), all[0].at("log_probabilities"));
  EXPECT_EQ(all[2].at("message").at("reasoning_content"), all[2].at("text"));  // no end of the reasoning in six tokens
  file.messages = files_.folder().write("chat.json", "[\n{\"role\": \"user\",\n\"content\": \"hello\"}\n]");
  EXPECT_EQ(answers(file), std::vector<Json>{all[0]});
}

TEST_F(CmdGenerate, NamesThePlaceOfAConversationThatItCannotRead) {
  const std::string good = "[{\"role\": \"user\", \"content\": \"a\"}]\n";
  const std::pair<std::string, std::string> cases[] = {
      {good + "{\"messages\": [{\"role\": \"nobody\", \"content\": \"a\"}]}\n", "chats.jsonl:2: message 0: the role"},
      {good + "{\"messages\": 5}\n", "chats.jsonl:2: messages must be a list"},
      {good + "5\n", "chats.jsonl:2: expected a list of messages"},
      {good + "{\"messages\": [\n", "chats.jsonl:2: not valid JSON"},
      {good + "{\"messages\": [], \"thinking_mode\": 5}\n", "chats.jsonl:2: thinking_mode must be"},
      {"\n", "holds no conversation"},
  };
  for (const auto& [content, fragment] : cases) {
    const std::string error = refusal_of_file(content);
    EXPECT_NE(error.find(fragment), std::string::npos) << "expected \"" << fragment << "\" in " << error;
  }
}

TEST_F(CmdGenerate, NeedsOneKindOfPromptAndATokenizer) {
  GenerateArgs both = args("hello");
  both.messages = files_ / "absent.json";
  for (const GenerateArgs& wrong : {args(""), both}) {
    const std::string error = error_of<InputError>([&] { run_generate(wrong); });
    EXPECT_NE(error.find("either --prompt TEXT or --messages FILE"), std::string::npos) << error;
  }
  std::filesystem::remove(files_ / "model/tokenizer.json");
  const auto result = testing::run_asterism({"generate", "--model", files_ / "model", "--prompt", "hello"});
  EXPECT_EQ(result.exit_code, kWrongInput);
  EXPECT_NE(result.last_error_line().find("has no tokenizer.json"), std::string::npos) << result.err;
  GenerateArgs elsewhere = args("hello");
  elsewhere.tokenizer = files_ / "tokenizer";
  EXPECT_EQ(answers(elsewhere).size(), 1u);
}

}  // namespace
}  // namespace asterism::cli
