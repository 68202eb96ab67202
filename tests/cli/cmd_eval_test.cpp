#include <gtest/gtest.h>

#include <cmath>

#include "asterism/cli/command_line.h"
#include "asterism/core/error.h"
#include "tests/cli/training_files.h"
#include "tests/support/program.h"

namespace asterism::cli {
namespace {

using testing::error_of;
using testing::run_asterism;

class CmdEval : public ::testing::Test {
 protected:
  nlohmann::ordered_json evaluate(const std::string& adapter, const std::string& data = "eval.jsonl") {
    ::testing::internal::CaptureStdout();
    EXPECT_EQ(run_eval({.model = files_ / "model",
                        .adapter = adapter,
                        .data = {files_ / data},
                        .overrides = {"model.compute=fp32", "data.sequence_length=16"},
                        .json = true}),
              0);
    return nlohmann::ordered_json::parse(::testing::internal::GetCapturedStdout());
  }

  TrainingFiles files_;
};

TEST_F(CmdEval, AgreesWithTheEvaluationsOfTheRun) {
  run_train({.recipe = files_.recipe(kSmallLora)});
  const auto report = files_.report();
  const auto base = evaluate(""), adapted = evaluate(files_.run("adapter"));
  EXPECT_NEAR(base.at("loss"), report.at("eval_loss_before"), 1e-9);
  EXPECT_NEAR(adapted.at("loss"), report.at("eval_loss_after"), 1e-9);
  EXPECT_GT(std::abs(base.at("loss").get<double>() - adapted.at("loss").get<double>()), 1e-6);
}

TEST_F(CmdEval, PrintsTheKeysOfTheInterface) {
  const auto result = evaluate("");
  std::vector<std::string> keys;
  for (const auto& [key, value] : result.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"loss", "perplexity", "tokens", "rows", "accuracy"}));
  EXPECT_NEAR(result.at("loss"), std::log(97.0), 0.3);  // a random model knows nothing
  EXPECT_DOUBLE_EQ(result.at("perplexity"), std::exp(result.at("loss").get<double>()));
  EXPECT_EQ(result.at("tokens"), 27);
  EXPECT_EQ(result.at("rows"), 3);
}

TEST_F(CmdEval, CountsTrainedTokensOnly) {
  files_.folder().write("masked.jsonl", "{\"input_ids\": [5, 6, 7, 8], \"labels\": [-100, -100, 7, -100]}\n");
  EXPECT_EQ(evaluate("", "masked.jsonl").at("tokens"), 1);
}

TEST_F(CmdEval, PrintsALineForEachNumber) {
  const auto result = run_asterism({"eval", "--model", files_ / "model", "--data", files_ / "eval.jsonl", "--data",
                                    files_ / "train.jsonl", "--set", "data.sequence_length=16"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* part : {"loss  ", "perplexity  ", "accuracy  ", "tokens      135 trained, in 15 rows"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
}

TEST_F(CmdEval, RefusesWhatItCannotEvaluate) {
  files_.folder().write("large.jsonl", "{\"input_ids\": [1, 97]}\n");
  const auto large = run_asterism({"eval", "--model", files_ / "model", "--data", files_ / "large.jsonl", "--json"});
  EXPECT_EQ(large.exit_code, kWrongInput);
  EXPECT_EQ(large.out, "");
  EXPECT_NE(large.last_error_line().find("large.jsonl:1: token id 97"), std::string::npos) << large.err;
  const std::string adapter = error_of<InputError>(
      [&] { run_eval({.model = files_ / "model", .adapter = files_ / "absent", .data = {files_ / "eval.jsonl"}}); });
  EXPECT_NE(adapter.find("absent"), std::string::npos) << adapter;
}

}  // namespace
}  // namespace asterism::cli
