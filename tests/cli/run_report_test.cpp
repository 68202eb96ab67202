#include "asterism/cli/run_report.h"

#include <gtest/gtest.h>

#include "tests/data/numbered_rows.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_model.h"

namespace asterism::cli {
namespace {

/// A finished run of a tiny model, of which only the numbers matter.
class RunReport : public ::testing::Test {
 protected:
  RunReport() {
    recipe_.name = "run";
    summary_.first_step = 2;
    summary_.last_step = 5;
    summary_.first_loss = 4.5;
    summary_.last_loss = 4.25;
    summary_.eval_loss_before = 4.75;
    summary_.eval_loss_after = 4.625;
    summary_.input_tokens = 600;
    summary_.trained_tokens = 500;
    summary_.seconds = 2.0;
  }

  nlohmann::ordered_json report() {
    const testing::TemporaryFolder folder;
    const data::DataSet data = data::make_data_set({{folder.write("rows.jsonl", data::numbered_rows(0, 3))}});
    const train::LoopInputs inputs{recipe_, model_, parameters_, data, nullptr, folder_, 5, at::kBFloat16};
    return make_run_report(recipe_, run_facts(model_, parameters_, parallel::Mesh()), inputs, summary_);
  }

  std::string description() const {
    std::string all;
    for (const std::string& line : describe_run(recipe_, folder_, summary_)) all += line + "\n";
    return all;
  }

  train::Recipe recipe_;
  model::Model model_ = testing::tiny_model(at::kFloat);
  std::vector<train::Parameter> parameters_ = {{"a", at::zeros({3, 4})}, {"b", at::zeros({5})}};
  train::RunFolder folder_{"runs/run"};
  train::LoopSummary summary_;
};

TEST_F(RunReport, CountsTheWeightsByHowTheyAreKept) {
  const auto parameters = report().at("parameters_total").get<int64_t>();
  model::Projection& down = model_.weights.layers[0].moe.moe.down;
  const int64_t count = down.weight.plain.numel();
  down.weight = ops::pack(down.weight.plain, ops::PackedFormat::kFp8, at::kByte);
  const auto packed = report();
  EXPECT_EQ(packed.at("parameters_total"), parameters);
  EXPECT_EQ(packed.at("weight_bytes").at("fp32"), 4 * (parameters - count));
  EXPECT_EQ(packed.at("weight_bytes").at("fp8"), count + model_.config.num_experts);  // each expert is one block
  EXPECT_NE(describe_weights(model_).find(", fp8 "), std::string::npos) << describe_weights(model_);
}

TEST_F(RunReport, HoldsWhatTheInterfaceAsksFor) {
  const auto full = report();
  for (const char* key : {"asterism", "libtorch"}) EXPECT_FALSE(full.at(key).get<std::string>().empty()) << key;
  for (const char* key : {"cpu_capability", "threads", "matmul_fp32", "matmul_bf16"}) {
    EXPECT_TRUE(full.at("machine").contains(key)) << key;
  }
  EXPECT_EQ(full.at("layout").at("ranks"), 1);
  EXPECT_EQ(full.at("compute"), "BFloat16");
  EXPECT_EQ(full.at("mode"), "full");
  EXPECT_EQ(full.at("parameters_trained"), 17);
  EXPECT_EQ(full.at("weight_bytes").at("fp32"), 4 * full.at("parameters_total").get<int64_t>());
  EXPECT_EQ(full.at("first_step"), 2);
  EXPECT_EQ(full.at("last_step"), 5);
  EXPECT_EQ(full.at("input_tokens"), 600);
  EXPECT_EQ(full.at("trained_tokens"), 500);
  EXPECT_EQ(full.at("seconds"), 2.0);
  EXPECT_EQ(full.at("tokens_per_second"), 300.0);
  EXPECT_GT(full.at("peak_memory_bytes"), 1 << 20);
  EXPECT_EQ(full.at("loss_first"), 4.5);
  EXPECT_EQ(full.at("loss_last"), 4.25);
  EXPECT_EQ(full.at("eval_loss_before"), 4.75);
  EXPECT_EQ(full.at("eval_loss_after"), 4.625);
  recipe_.lora.emplace();
  EXPECT_EQ(report().at("mode"), "lora");
}

TEST_F(RunReport, CountsEveryNumberOfTheModelButTables) {
  int64_t expected = 0, tables = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(model_.config)) {
    (spec.role == model::TensorRole::kTable ? tables : expected) += c10::multiply_integers(spec.shape);
  }
  EXPECT_GT(tables, 0);
  EXPECT_EQ(report().at("parameters_total"), expected);
}

TEST_F(RunReport, HasNoNumbersThatWereNotComputed) {
  summary_.last_step = summary_.first_step;
  summary_.eval_loss_before.reset();
  summary_.eval_loss_after.reset();
  const auto idle = report();
  for (const char* key : {"loss_first", "loss_last", "eval_loss_before", "eval_loss_after"}) {
    EXPECT_FALSE(idle.contains(key)) << key;
  }
  EXPECT_EQ(description(), "run folder runs/run\n");
}

TEST_F(RunReport, DescribesTheRunInUnits) {
  EXPECT_EQ(description().find("loss 4.5000 -> 4.2500 in 3 steps, 2.0 s, 300 tokens/s, peak 0."), 0u) << description();
  EXPECT_NE(description().find("held-out loss 4.7500 -> 4.6250\n"), std::string::npos);
  EXPECT_EQ(description().find("adapter"), std::string::npos);
  summary_.stopped = true;
  recipe_.lora.emplace();
  EXPECT_EQ(description().find("stopped by a signal after step 5; run the same command to go on\n"), 0u);
  EXPECT_NE(description().find("adapter in runs/run/adapter\n"), std::string::npos);
}

TEST(SummarisePaths, FoldsTheNumbersOfLayersInOrder) {
  EXPECT_EQ(summarise_paths({"model.layers.0.mlp.gate", "model.layers.0.self_attn.q_a_proj", "mtp.0.h_proj",
                             "model.layers.11.self_attn.q_a_proj"}),
            (std::vector<std::string>{"model.layers.*.mlp.gate (1)", "model.layers.*.self_attn.q_a_proj (2)",
                                      "mtp.0.h_proj (1)"}));
  EXPECT_TRUE(summarise_paths({}).empty());
}

}  // namespace
}  // namespace asterism::cli
