#include "bench/step_setup.h"

#include <algorithm>
#include <filesystem>

#include "asterism/core/error.h"
#include "asterism/core/rng.h"
#include "asterism/model/initialize.h"
#include "asterism/model/lora.h"
#include "bench/needed_work.h"

namespace asterism::bench {

std::map<std::string, std::string> step_options() {
  return {{"config", ""},  {"mode", "full"},     {"seq", "2048"},      {"steps", "3"},
          {"warmup", "1"}, {"dtype", "float32"}, {"threads", "0"},     {"recompute", "none"},
          {"seed", "0"},   {"lora-rank", "16"},  {"lora-alpha", "32"}, {"lora-targets", "all"}};
}

StepSetup prepare_step(const Options& options) {
  if (options.text("config").empty()) input_error("--config FILE is missing");
  const at::ScalarType type = options.is("dtype", "bfloat16", "float32") ? at::kBFloat16 : at::kFloat;
  StepSetup setup;
  setup.model.config = model::read_config(options.text("config"));
  setup.model.config.num_mtp_layers = 0;
  setup.model.weights = model::initialize_weights(setup.model.config, options.number("seed"), type);
  if (options.is("mode", "lora", "full")) {
    const model::LoraConfig lora = bench_lora(options, options.is("lora-targets", "all", "attn"));
    model::attach_lora(setup.model.config, setup.model.weights, lora, 0);
    setup.parameters = train::lora_parameters(setup.model);
  } else {
    setup.parameters = train::full_parameters(setup.model, {});
  }
  setup.settings.forward.compute = type;
  setup.settings.loss.recompute = recompute_of(options);
  return setup;
}

model::Recompute recompute_of(const Options& options) {
  constexpr model::Recompute kModes[] = {model::Recompute::kBlocks, model::Recompute::kSelective,
                                         model::Recompute::kNone};
  return kModes[options.choice("recompute", {"blocks", "selective", "none"})];
}

model::LoraConfig bench_lora(const Options& options, bool with_experts) {
  model::LoraConfig lora;
  lora.rank = options.number("lora-rank");
  lora.alpha = static_cast<double>(options.number("lora-alpha"));
  lora.targets = {"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_proj", "self_attn.o_b_proj"};
  if (with_experts) lora.targets.insert(lora.targets.end(), {"shared_experts", "experts"});
  return lora;
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

double needed_flops(const StepSetup& setup, int64_t tokens) {
  const model::Config& config = setup.model.config;
  model::Weights weights = setup.model.weights;
  double adapters = 0.0;
  model::for_each_projection(config, weights, [&](const model::TensorSpec& spec, model::Projection& projection) {
    if (!projection.lora) return;
    double numbers = static_cast<double>(projection.lora->a_RK.numel() + projection.lora->b_NR.numel());
    // A token meets the pairs of its own experts only.
    if (spec.shape.size() == 3) numbers *= static_cast<double>(config.experts_per_token) / spec.shape[0];
    adapters += numbers;
  });
  return needed_flops(config, tokens, /*trained=*/adapters == 0.0, adapters);
}

std::string config_name(const Options& options) {
  return std::filesystem::path(options.text("config")).stem().string();
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

}  // namespace asterism::bench
