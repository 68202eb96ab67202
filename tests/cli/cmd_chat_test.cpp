#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "asterism/cli/commands.h"
#include "asterism/core/error.h"
#include "tests/data/tokenizer_files.h"
#include "tests/support/program.h"
#include "tests/support/temporary_folder.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using testing::run_asterism;
using testing::TemporaryFolder;
using Json = nlohmann::ordered_json;

/// A folder with a tokenizer: 97 is a, 98 is b, 256 is ab.
class CmdChat : public ::testing::Test {
 protected:
  CmdChat() { folder_.write("tokenizer.json", data::small_tokenizer({{"a", "b"}}).dump()); }

  std::vector<Json> lines(const std::string& out) const {
    std::vector<Json> parsed;
    std::istringstream stream(out);
    for (std::string line; std::getline(stream, line);) parsed.push_back(Json::parse(line));
    return parsed;
  }

  TemporaryFolder folder_;
};

TEST_F(CmdChat, TokensOfAFileInOrderAndErrorsInBetween) {
  const auto file =
      folder_.write("rows.jsonl", "\xEF\xBB\xBF{\"text\": \"ab\"}\r\n\nnot json\n{\"text\": 5}\n{\"text\": \"ba\"}");
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_chat_tokens({.tokenizer = folder_.path(), .file = file}), 0);
  const auto rows = lines(::testing::internal::GetCapturedStdout());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].at("ids"), Json::array({256}));
  EXPECT_EQ(rows[1].at("error").at("category"), "invalid_json");
  EXPECT_EQ(rows[2].at("error").at("category"), "invalid_content");
  EXPECT_EQ(rows[3].at("ids"), Json::array({98, 97}));
}

TEST_F(CmdChat, ReadsStdinAsAProgram) {
  const auto result = run_asterism({"chat", "tokens", "--tokenizer", folder_.path()}, "{\"text\": \"aab\"}\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "{\"ids\":[97,256]}\n");
}

TEST_F(CmdChat, EncodeTellsVersionsHistoryAndWeightsApart) {
  const auto rows = folder_.write("rows.jsonl", R"({"messages": [{"role": "system", "content": "a"},)"
                                                R"( {"role": "user", "content": "b"}, {"role": "assistant",)"
                                                R"( "content": "ab", "loss_weight": 0.3}], "add_bos": false})"
                                                "\n");
  const auto text = [&](const std::string& variant) {
    const auto result =
        run_asterism({"chat", "encode", "--tokenizer", folder_.path(), "--variant", variant, "--history", "all", rows});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json row = lines(result.out).at(0);
    EXPECT_EQ(row.at("weights").back(), 0.3) << "as it was given, not as the nearest float spells out";
    return row.at("text").get<std::string>();
  };
  EXPECT_EQ(text("auto"), "a<｜User｜>b<｜Assistant｜></think>ab<｜end▁of▁sentence｜>");
  EXPECT_EQ(text("v4.1"), "<｜System｜>" + text("v4-0731"));
}

TEST_F(CmdChat, EncodeGoesOnAfterARowThatCannotBeEncoded) {
  const auto result = run_asterism({"chat", "encode", "--tokenizer", folder_.path()},
                                   "{\"messages\": [{\"role\": \"nobody\", \"content\": \"a\"}]}\n"
                                   "{\"messages\": 5}\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const auto rows = lines(result.out);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("error").at("category"), "unknown_role");
  EXPECT_EQ(rows[0].at("error").at("message_index"), 0);
  EXPECT_TRUE(rows[1].contains("error"));
}

TEST_F(CmdChat, NamesFilesThatAreNotThere) {
  const std::string rows =
      error_of<InputError>([&] { run_chat_tokens({.tokenizer = folder_.path(), .file = folder_ / "absent.jsonl"}); });
  EXPECT_NE(rows.find("absent.jsonl"), std::string::npos) << rows;
  const std::string tokenizer =
      error_of<InputError>([&] { run_chat_tokens({.tokenizer = folder_ / "absent", .file = "-"}); });
  EXPECT_NE(tokenizer.find("absent"), std::string::npos) << tokenizer;
}

}  // namespace
}  // namespace asterism::cli
