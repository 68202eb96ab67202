#include "asterism/cli/run_report.h"

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstdio>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "asterism/ops/matmul.h"
#include "asterism/version.h"

namespace asterism::cli {

namespace {

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "%.*f", digits, value);
  return buffer;
}

}  // namespace

RunFacts run_facts(const model::Model& model, const std::vector<train::Parameter>& parameters,
                   const parallel::Mesh& mesh) {
  return {train::count_elements(parameters), model::bytes_by_storage(model.config, model.weights), mesh};
}

nlohmann::ordered_json make_run_report(const train::Recipe& recipe, const RunFacts& facts,
                                       const train::LoopInputs& inputs, const train::LoopSummary& summary) {
  int64_t total = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(inputs.model.config)) {
    if (spec.role != model::TensorRole::kTable) total += c10::multiply_integers(spec.shape);
  }
  nlohmann::ordered_json report;
  report["asterism"] = kVersion;
  report["libtorch"] = TORCH_VERSION;
  report["machine"] = {{"cpu_capability", at::get_cpu_capability()},
                       {"threads", at::get_num_threads()},
                       {"matmul_fp32", ops::matmul_provider(at::kFloat)},
                       {"matmul_bf16", ops::matmul_provider(at::kBFloat16)}};
  report["layout"] = {{"ranks", facts.mesh.ranks},
                      {"expert", facts.mesh.expert},
                      {"shard", facts.mesh.shard},
                      {"replicate", facts.mesh.replicate}};
  report["compute"] = c10::toString(inputs.compute);
  report["mode"] = recipe.lora ? "lora" : "full";
  report["parameters_total"] = total;
  report["parameters_trained"] = facts.trained_numbers;
  report["weight_bytes"] = facts.weight_bytes;
  report["first_step"] = summary.first_step;
  report["last_step"] = summary.last_step;
  report["steps"] = inputs.steps;
  report["stopped"] = summary.stopped;
  report["input_tokens"] = summary.input_tokens;
  report["trained_tokens"] = summary.trained_tokens;
  report["seconds"] = summary.seconds;
  report["tokens_per_second"] = summary.seconds > 0 ? static_cast<double>(summary.input_tokens) / summary.seconds : 0.0;
  report["peak_memory_bytes"] = peak_resident_bytes();
  if (summary.last_step > summary.first_step) {
    report["loss_first"] = summary.first_loss;
    report["loss_last"] = summary.last_loss;
  }
  if (summary.eval_loss_before) report["eval_loss_before"] = *summary.eval_loss_before;
  if (summary.eval_loss_after) report["eval_loss_after"] = *summary.eval_loss_after;
  return report;
}

std::string describe_weights(const model::Model& model) {
  std::string line;
  for (const auto& [storage, bytes] : model::bytes_by_storage(model.config, model.weights)) {
    line += text(line.empty() ? "weights in memory: " : ", ", storage, " ", bytes, " bytes");
  }
  return line;
}

std::vector<std::string> describe_run(const train::Recipe& recipe, const train::RunFolder& folder,
                                      const train::LoopSummary& summary) {
  std::vector<std::string> lines;
  if (summary.stopped) {
    lines.push_back(text("stopped by a signal after step ", summary.last_step, "; run the same command to go on"));
  }
  if (summary.last_step > summary.first_step)
    lines.push_back(text("loss ", fixed(summary.first_loss, 4), " -> ", fixed(summary.last_loss, 4), " in ",
                         summary.last_step - summary.first_step, " steps, ", fixed(summary.seconds, 1), " s, ",
                         fixed(summary.seconds > 0 ? summary.input_tokens / summary.seconds : 0.0, 0),
                         " tokens/s, peak ", fixed(static_cast<double>(peak_resident_bytes()) / 1e9, 2), " GB"));
  if (summary.eval_loss_before && summary.eval_loss_after) {
    lines.push_back(
        text("held-out loss ", fixed(*summary.eval_loss_before, 4), " -> ", fixed(*summary.eval_loss_after, 4)));
  }
  if (recipe.lora) lines.push_back(text("adapter in ", folder.adapter_folder().string()));
  lines.push_back(text("run folder ", folder.root().string()));
  return lines;
}

std::vector<std::string> summarise_paths(const std::vector<std::string>& paths) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (std::string path : paths) {
    const std::string prefix = "model.layers.";
    if (path.rfind(prefix, 0) == 0) path = prefix + "*" + path.substr(path.find('.', prefix.size()));
    auto found = std::find_if(counts.begin(), counts.end(), [&](const auto& entry) { return entry.first == path; });
    if (found == counts.end()) {
      counts.emplace_back(path, 1);
    } else {
      ++found->second;
    }
  }
  std::vector<std::string> lines;
  for (const auto& [path, count] : counts) lines.push_back(text(path, " (", count, ")"));
  return lines;
}

}  // namespace asterism::cli
