// One training step, timed: the counterpart of hf_baseline.py with the same work (random ids, forward with loss,
// backward, AdamW) and the same keys in its JSON line. One process measures one configuration, so that the peak
// resident memory belongs to it alone.
//
//   bench_train_step --config bench/configs/small.json --mode full --seq 2048

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "asterism/core/rng.h"
#include "asterism/model/initialize.h"
#include "asterism/model/lora.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/tensor_memory.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/step.h"

namespace {

using namespace asterism;
using Clock = std::chrono::steady_clock;

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
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i] + (std::string(argv[i]).rfind("--", 0) == 0 ? 2 : 0);
    if (!options.values.contains(key)) input_error("bench_train_step: unknown option ", argv[i]);
    options.values[key] = argv[i + 1];
  }
  if (options.text("config").empty()) input_error("bench_train_step: --config FILE is missing");
  return options;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

double megabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(1 << 20);
}

data::PackedRow random_row(const model::Config& config, int64_t length, uint64_t seed) {
  data::PackedRow row;
  const RandomStream stream(seed, "bench_row");
  for (int64_t t = 0; t < length; ++t) {
    row.ids.push_back(static_cast<int64_t>(stream.below(config.vocab_size, t)));
    row.weights.push_back(1.0f);
  }
  row.lengths = {length};
  return row;
}

std::vector<train::Parameter> prepare(model::Model& model, const Options& options) {
  if (options.text("mode") == "full") return train::full_parameters(model, {});
  model::LoraConfig lora;
  lora.rank = options.number("lora-rank");
  lora.alpha = static_cast<double>(options.number("lora-alpha"));
  // The matrices that the baseline adapts: peft cannot adapt the grouped o_a_proj as a linear layer.
  lora.targets = {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_proj", "self_attn.o_b_proj"};
  if (options.text("lora-targets") == "all") {
    lora.targets.insert(lora.targets.end(), {"shared_experts", "experts"});
  }
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
  const std::string& config = options.text("config");
  const size_t slash = config.find_last_of('/'), dot = config.find_last_of('.');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  nlohmann::ordered_json line;
  line["kind"] = "step";
  line["program"] = "asterism";
  line["config"] = config.substr(begin, dot - begin);
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
