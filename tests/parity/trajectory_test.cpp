// Twenty optimizer steps of the Hugging Face reference: loss, gradient norm and final parameters, full and LoRA,
// through the engine's own step, optimizer and schedule.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "asterism/checkpoint/peft.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/schedule.h"
#include "asterism/train/step.h"
#include "tests/parity/golden.h"
#include "tests/support/gradients.h"

namespace asterism::testing {
namespace {

std::vector<data::PackedRow> rows_of(const at::Tensor& id_BS, const at::Tensor& label_BS) {
  std::vector<data::PackedRow> rows;
  for (int64_t b = 0; b < id_BS.size(0); ++b) {
    data::PackedRow row;
    for (int64_t t = 0; t < id_BS.size(1); ++t) {
      const int64_t id = id_BS[b][t].item<int64_t>(), label = label_BS[b][t].item<int64_t>();
      EXPECT_TRUE(label == -100 || label == id);
      row.ids.push_back(id);
      row.weights.push_back(label == -100 ? 0.0f : 1.0f);
    }
    row.lengths = {id_BS.size(1)};
    rows.push_back(row);
  }
  return rows;
}

void run_trajectory(const GoldenFile& golden, model::Model& model, const std::vector<train::Parameter>& parameters,
                    int64_t micro_batch) {
  train::OptimizerSection settings;
  settings.lr = 1e-3;
  train::ScheduleSection schedule;
  schedule.min_ratio = 0.0;
  train::AdamW optimizer(parameters, settings);
  const at::Tensor ids = golden.tensor("input_ids"), labels = golden.tensor("labels");
  const int64_t steps = ids.size(0);
  for (int64_t k = 0; k < steps; ++k) {
    train::StepSettings step;
    step.micro_batch = micro_batch;
    step.forward.step = k;
    const train::StepResult result = train::run_step(model, rows_of(ids[k], labels[k]), step);
    const train::GradientReport gradient = train::inspect_gradients(parameters);
    const double want_loss = golden.tensor("loss")[k].item<double>();
    const double want_norm = golden.tensor("grad_norm")[k].item<double>();
    EXPECT_NEAR(result.loss, want_loss, 2e-5 * want_loss) << "step " << k;
    EXPECT_NEAR(gradient.norm, want_norm, 1e-3 * want_norm) << "step " << k;
    EXPECT_EQ(result.counts.trained_tokens, golden.tensor("trained_tokens")[k].item<int64_t>());
    const double lr = train::learning_rate(settings.lr, schedule, k, steps);
    EXPECT_NEAR(lr, golden.tensor("lr")[k].item<double>(), 1e-12);
    optimizer.step(lr, train::clip_factor(gradient.norm, settings.clip_norm));
  }
}

void expect_final(const GoldenFile& golden, const std::string& stored, const train::Parameter& parameter,
                  double tolerance) {
  ASSERT_TRUE(golden.has("fingerprint." + stored)) << stored;
  if (is_degenerate(stored)) return;  // Adam turns the noise of zero gradients into steps of size lr (README section 6)
  const at::Tensor want = golden.tensor("fingerprint." + stored), got = fingerprint(parameter.value);
  const double norm = want[1].item<double>();
  EXPECT_NEAR(got[1].item<double>(), norm, tolerance * norm) << stored;
  const double spread = std::sqrt(static_cast<double>(parameter.value.numel()));
  EXPECT_NEAR(got[3].item<double>(), want[3].item<double>(), tolerance * norm * spread) << stored;
}

TEST(Trajectory, FullFineTuningFollowsTheReference) {
  const GoldenFile golden("hf/all_paths/trajectory_full.safetensors");
  for (const int64_t micro_batch : {2, 1}) {
    model::Model model = golden_model("all_paths", at::kFloat);
    const auto parameters = train::full_parameters(model, {});
    run_trajectory(golden, model, parameters, micro_batch);
    for (const auto& parameter : parameters) expect_final(golden, parameter.name, parameter, 5e-5);
  }
}

TEST(Trajectory, LoraFollowsTheReference) {
  const GoldenFile golden("hf/all_paths/trajectory_lora.safetensors");
  model::Model model = golden_model("all_paths", at::kFloat);
  const auto folder = golden_file("hf/all_paths/lora/adapter_model.safetensors").parent_path();
  checkpoint::load_adapter(folder, model.config, model.weights);
  const auto parameters = train::lora_parameters(model);
  run_trajectory(golden, model, parameters, 2);
  const auto names = checkpoint::adapter_tensor_names(model.config, model.weights);
  for (const auto& parameter : parameters) expect_final(golden, names.at(parameter.name), parameter, 2e-5);
}

}  // namespace
}  // namespace asterism::testing
