// One training step, timed: the counterpart of hf_baseline.py with the same work (random ids, forward with loss,
// backward, AdamW) and the same keys in its JSON line. One process measures one configuration, so that the peak
// resident memory belongs to it alone.
//
//   bench_train_step --config bench/configs/small.json --mode full --seq 2048

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "asterism/model/initialize.h"
#include "asterism/model/lora.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/tensor_memory.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/step.h"
#include "step_work.h"

namespace {

using namespace asterism;
using namespace asterism::bench;

struct Options {
  std::map<std::string, std::string> values = {{"config", ""},      {"mode", "full"},      {"seq", "2048"},
                                               {"steps", "3"},      {"warmup", "1"},       {"dtype", "float32"},
                                               {"threads", "0"},    {"recompute", "none"}, {"seed", "0"},
                                               {"lora-rank", "16"}, {"lora-alpha", "32"},  {"lora-targets", "all"}};
  const std::string& text(const std::string& key) const { return values.at(key); }
  int64_t number(const std::string& key) const { return std::stoll(values.at(key)); }
};

Options parse(int argc, char** argv) {
  Options options;
  parse_options("bench_train_step", argc, argv, options.values);
  if (options.text("config").empty()) input_error("bench_train_step: --config FILE is missing");
  return options;
}

std::vector<train::Parameter> prepare(model::Model& model, const Options& options) {
  if (options.text("mode") == "full") return train::full_parameters(model, {});
  const bool all = options.text("lora-targets") == "all";
  const model::LoraConfig lora = bench_lora(options.number("lora-rank"), options.number("lora-alpha"), all);
  model::attach_lora(model.config, model.weights, lora, 0);
  return train::lora_parameters(model);
}

model::Recompute recompute_mode(const std::string& name) {
  if (name == "blocks") return model::Recompute::kBlocks;
  if (name == "selective") return model::Recompute::kSelective;
  if (name != "none") input_error("bench_train_step: --recompute must be blocks, selective or none, got ", name);
  return model::Recompute::kNone;
}

int64_t count_numbers(model::Model& model) {
  int64_t total = 0;
  model::for_each_tensor(model.config, model.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    if (spec.role != model::TensorRole::kTable) total += tensor.numel();
  });
  return total;
}

nlohmann::ordered_json measure(const Options& options) {
  const double import_mb = megabytes(resident_bytes());
  const bool bf16 = options.text("dtype") == "bfloat16";
  model::Model model;
  model.config = model::read_config(options.text("config"));
  model.config.num_mtp_layers = 0;
  model.weights = model::initialize_weights(model.config, options.number("seed"), bf16 ? at::kBFloat16 : at::kFloat);
  const std::vector<train::Parameter> parameters = prepare(model, options);
  train::OptimizerSection settings;
  train::AdamW optimizer(parameters, settings);
  const double model_mb = megabytes(resident_bytes());

  train::StepSettings step;
  step.forward.compute = bf16 ? at::kBFloat16 : at::kFloat;
  step.loss.recompute = recompute_mode(options.text("recompute"));
  const int64_t seq = options.number("seq"), warmup = options.number("warmup");
  std::vector<double> whole, forward, backward, update, losses;
  for (int64_t k = 0; k < warmup + options.number("steps"); ++k) {
    const std::vector<data::PackedRow> rows = {random_row(model.config, seq, static_cast<uint64_t>(k))};
    const auto start = Clock::now();
    const train::StepResult result = train::run_step(model, rows, step);
    const auto before_update = Clock::now();
    optimizer.step(1e-4, 1.0);
    losses.push_back(result.loss);
    std::fprintf(stderr, "step %lld: loss %.4f fwd %.3f bwd %.3f opt %.3f s, peak %.0f MB\n", static_cast<long long>(k),
                 result.loss, result.forward_seconds, result.backward_seconds, seconds_since(before_update),
                 megabytes(peak_resident_bytes()));
    if (k < warmup) continue;
    update.push_back(seconds_since(before_update));
    whole.push_back(seconds_since(start));
    forward.push_back(result.forward_seconds);
    backward.push_back(result.backward_seconds);
  }
  nlohmann::ordered_json line;
  line["kind"] = "step";
  line["program"] = "asterism";
  line["config"] = stem_of(options.text("config"));
  line["mode"] = options.text("mode");
  line["dtype"] = options.text("dtype");
  line["seq"] = seq;
  line["batch"] = 1;
  line["steps"] = options.number("steps");
  line["warmup"] = warmup;
  line["grad_checkpointing"] = options.text("recompute") != "none";
  line["recompute"] = options.text("recompute");
  line["threads"] = at::get_num_threads();
  line["torch"] = TORCH_VERSION;
  line["matmul"] = ops::matmul_provider(step.forward.compute);
  line["optimizer"] = "adamw";
  line["params_total"] = count_numbers(model);
  line["params_trainable"] = train::count_elements(parameters);
  line["tokens_per_s"] = static_cast<double>(seq) / median(whole);
  line["step_s"] = median(whole);
  line["fwd_s"] = median(forward);
  line["bwd_s"] = median(backward);
  line["opt_s"] = median(update);
  line["step_s_all"] = whole;
  line["loss_first"] = losses.front();
  line["loss_last"] = losses.back();
  line["rss_import_mb"] = import_mb;
  line["rss_model_mb"] = model_mb;
  line["peak_rss_mb"] = megabytes(peak_resident_bytes());
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    keep_freed_memory();
    ops::pool_tensor_memory();
    const Options options = parse(argc, argv);
    if (options.number("threads") > 0) at::set_num_threads(static_cast<int>(options.number("threads")));
    std::cout << measure(options).dump() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << user_message(error) << "\n";
    return 1;
  }
  return 0;
}
