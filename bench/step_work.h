#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "asterism/data/sample.h"
#include "asterism/model/config.h"
#include "asterism/model/lora.h"

/// What the programs that measure training steps have in common.
namespace asterism::bench {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start);
double median(std::vector<double> values);
double megabytes(uint64_t bytes);  // of 2^20

/// "configs/small.json" -> "small".
std::string stem_of(const std::string& path);

/// Options --key value: `values` has the defaults. InputError for one that is not among them, or without a value.
void parse_options(const std::string& program, int argc, char** argv, std::map<std::string, std::string>& values);

/// One document of random ids, all trained.
data::PackedRow random_row(const model::Config& config, int64_t length, uint64_t seed);

/// Pairs on the matrices that the baselines adapt, `with_experts` on shared and routed experts as well. peft cannot
/// adapt the grouped o_a_proj as a linear layer.
model::LoraConfig bench_lora(int64_t rank, int64_t alpha, bool with_experts);

}  // namespace asterism::bench
