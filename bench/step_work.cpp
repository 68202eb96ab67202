#include "step_work.h"

#include <algorithm>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"

namespace asterism::bench {

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

std::string stem_of(const std::string& path) {
  const size_t slash = path.find_last_of('/'), dot = path.find_last_of('.');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  return path.substr(begin, dot - begin);
}

void parse_options(const std::string& program, int argc, char** argv, std::map<std::string, std::string>& values) {
  for (int i = 1; i < argc; i += 2) {
    const std::string argument = argv[i];
    const std::string key = argument.starts_with("--") ? argument.substr(2) : argument;
    if (!values.contains(key)) input_error(program, ": unknown option ", argument);
    if (i + 1 == argc) input_error(program, ": ", argument, " has no value");
    values[key] = argv[i + 1];
  }
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

model::LoraConfig bench_lora(int64_t rank, int64_t alpha, bool with_experts) {
  model::LoraConfig lora;
  lora.rank = rank;
  lora.alpha = static_cast<double>(alpha);
  lora.targets = {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_proj", "self_attn.o_b_proj"};
  if (with_experts) lora.targets.insert(lora.targets.end(), {"shared_experts", "experts"});
  return lora;
}

}  // namespace asterism::bench
