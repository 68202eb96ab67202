#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "asterism/train/optimizer.h"
#include "asterism/train/step.h"
#include "bench/options.h"

namespace asterism::bench {

/// A randomly initialised model, what of it is trained, and how a step runs, as the options say: config, mode (full or
/// lora), dtype, recompute (none, selective or blocks), seed, lora-rank, lora-alpha, lora-targets (all or attn).
struct StepSetup {
  model::Model model;
  std::vector<train::Parameter> parameters;
  train::StepSettings settings;
};

/// Those options with their defaults, and the others that all benchmarks of steps have: seq, steps, warmup, threads.
std::map<std::string, std::string> step_options();

StepSetup prepare_step(const Options& options);

model::Recompute recompute_of(const Options& options);

/// Pairs on the matrices that the baselines adapt, `with_experts` on shared and routed experts as well. peft cannot
/// adapt the grouped o_a_proj as a linear layer.
model::LoraConfig bench_lora(const Options& options, bool with_experts);

/// Random ids, all of them trained.
data::PackedRow random_row(const model::Config& config, int64_t length, uint64_t seed);

/// FLOP per token that a step needs (needed_work.h); with adapters it counts those that a token meets.
double needed_flops(const StepSetup& setup, int64_t tokens);

/// "small" for configs/small.json.
std::string config_name(const Options& options);

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start);
double median(std::vector<double> values);
double megabytes(uint64_t bytes);  // of 2^20

}  // namespace asterism::bench
