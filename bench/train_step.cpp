// One training step, timed: the counterpart of hf_baseline.py with the same work (random ids, forward with loss,
// backward, AdamW) and the same keys in its JSON line. One process measures one configuration, so that the peak
// resident memory belongs to it alone.
//
//   bench_train_step --config bench/configs/small.json --mode full --seq 2048

#include <ATen/Parallel.h>
#include <torch/version.h>

#include <cstdio>
#include <iostream>

#include "asterism/core/error.h"
#include "asterism/core/memory.h"
#include "asterism/ops/matmul.h"
#include "asterism/ops/tensor_memory.h"
#include "bench/machine_peak.h"
#include "bench/step_setup.h"

namespace {

using namespace asterism;
using bench::Clock;
using bench::seconds_since;

struct Seconds {
  std::vector<double> whole, forward, backward, update, losses;
};

Seconds time_steps(const bench::StepSetup& setup, const bench::Options& options) {
  train::AdamW optimizer(setup.parameters, train::OptimizerSection{});
  const int64_t seq = options.number("seq"), warmup = options.number("warmup");
  Seconds seconds;
  for (int64_t k = 0; k < warmup + options.number("steps"); ++k) {
    const std::vector<data::PackedRow> rows = {bench::random_row(setup.model.config, seq, static_cast<uint64_t>(k))};
    const auto start = Clock::now();
    const train::StepResult result = train::run_step(setup.model, rows, setup.settings);
    const auto before_update = Clock::now();
    optimizer.step(1e-4, 1.0);
    seconds.losses.push_back(result.loss);
    std::fprintf(stderr, "step %lld: loss %.4f fwd %.3f bwd %.3f opt %.3f s, peak %.0f MB\n", static_cast<long long>(k),
                 result.loss, result.forward_seconds, result.backward_seconds, seconds_since(before_update),
                 bench::megabytes(peak_resident_bytes()));
    if (k < warmup) continue;
    seconds.update.push_back(seconds_since(before_update));
    seconds.whole.push_back(seconds_since(start));
    seconds.forward.push_back(result.forward_seconds);
    seconds.backward.push_back(result.backward_seconds);
  }
  return seconds;
}

int64_t count_numbers(model::Model& model) {
  int64_t total = 0;
  model::for_each_tensor(model.config, model.weights, [&](const model::TensorSpec& spec, at::Tensor& tensor) {
    if (spec.role != model::TensorRole::kTable) total += tensor.numel();
  });
  return total;
}

// After the steps, whose memory and caches the products of the probe would disturb.
void add_peak(nlohmann::ordered_json& line, const bench::StepSetup& setup, int64_t seq) {
  const double needed = bench::needed_flops(setup, seq), peak = bench::product_peak(setup.settings.forward.compute);
  line["flops_per_token"] = needed;
  line["mm_peak_gflops"] = peak / 1e9;
  line["peak_fraction"] = needed * line["tokens_per_s"].get<double>() / peak;
}

nlohmann::ordered_json measure(const bench::Options& options) {
  const double import_mb = bench::megabytes(resident_bytes());
  bench::StepSetup setup = bench::prepare_step(options);
  const double model_mb = bench::megabytes(resident_bytes());
  const int64_t seq = options.number("seq");
  const Seconds seconds = time_steps(setup, options);
  nlohmann::ordered_json line;
  line["kind"] = "step";
  line["program"] = "asterism";
  line["config"] = bench::config_name(options);
  line["mode"] = options.text("mode");
  line["dtype"] = options.text("dtype");
  line["seq"] = seq;
  line["batch"] = 1;
  line["steps"] = options.number("steps");
  line["warmup"] = options.number("warmup");
  line["grad_checkpointing"] = options.text("recompute") != "none";
  line["recompute"] = options.text("recompute");
  line["threads"] = at::get_num_threads();
  line["torch"] = TORCH_VERSION;
  line["matmul"] = ops::matmul_provider(setup.settings.forward.compute);
  line["optimizer"] = "adamw";
  line["params_total"] = count_numbers(setup.model);
  line["params_trainable"] = train::count_elements(setup.parameters);
  line["tokens_per_s"] = static_cast<double>(seq) / bench::median(seconds.whole);
  line["step_s"] = bench::median(seconds.whole);
  line["fwd_s"] = bench::median(seconds.forward);
  line["bwd_s"] = bench::median(seconds.backward);
  line["opt_s"] = bench::median(seconds.update);
  line["step_s_all"] = seconds.whole;
  line["loss_first"] = seconds.losses.front();
  line["loss_last"] = seconds.losses.back();
  line["rss_import_mb"] = import_mb;
  line["rss_model_mb"] = model_mb;
  line["peak_rss_mb"] = bench::megabytes(peak_resident_bytes());
  add_peak(line, setup, seq);
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    keep_freed_memory();
    ops::pool_tensor_memory();
    const bench::Options options("bench_train_step", bench::step_options(), argc, argv);
    if (options.number("threads") > 0) at::set_num_threads(static_cast<int>(options.number("threads")));
    std::cout << measure(options).dump() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << user_message(error) << "\n";
    return 1;
  }
  return 0;
}
