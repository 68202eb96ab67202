#include "bench/needed_work.h"

#include <algorithm>

namespace asterism::bench {

namespace {

using model::AttentionKind;

// Sums over the queries of a sequence.
struct PairCounts {
  int64_t attended = 0, scored = 0;  // by attention; by the indexer
};

PairCounts count_pairs(const model::Config& config, const model::LayerSpec& layer, int64_t tokens) {
  PairCounts counts;
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t visible = layer.ratio == 0 ? 0 : (t + 1) / layer.ratio;
    const bool sparse = layer.attention == AttentionKind::kSparse;
    counts.attended +=
        std::min(t + 1, config.sliding_window) + (sparse ? std::min(visible, config.index_topk) : visible);
    if (sparse) counts.scored += visible;
  }
  return counts;
}

// H P, the channels of all heads.
double channels(const model::Config& config) {
  return static_cast<double>(config.num_heads * config.head_dim);
}

}  // namespace

PartWork operator+(const PartWork& a, const PartWork& b) {
  return {a.numbers + b.numbers, a.forward_only + b.forward_only, a.pairs + b.pairs};
}

double attention_pairs(const model::Config& config, const model::LayerSpec& layer, int64_t tokens) {
  return static_cast<double>(count_pairs(config, layer, tokens).attended) / static_cast<double>(tokens);
}

PartWork attention_work(const model::Config& config, const model::LayerSpec& layer, int64_t tokens) {
  const double d = config.hidden_size, ql = config.q_lora_rank, p = config.head_dim, low = config.o_lora_rank,
               groups = config.o_groups;
  PartWork work;
  work.numbers = ql * d + channels(config) * ql + p * d + low * channels(config) + d * groups * low;
  const bool sparse = layer.attention == AttentionKind::kSparse;
  if (layer.ratio > 0) work.numbers += 2.0 * (sparse ? 2.0 : 1.0) * p * d;
  const PairCounts counts = count_pairs(config, layer, tokens);
  if (sparse) {
    const double heads = config.index_heads, width = config.index_head_dim;
    work.forward_only = 2.0 * (heads * width * ql + heads * d + 4.0 * width * d) +
                        2.0 * heads * width * static_cast<double>(counts.scored) / static_cast<double>(tokens);
  }
  work.pairs = 4.0 * channels(config) * static_cast<double>(counts.attended) / static_cast<double>(tokens);
  return work;
}

PartWork routed_work(const model::Config& config) {
  return {static_cast<double>(config.experts_per_token * 3 * config.hidden_size * config.expert_width), 0.0, 0.0};
}

PartWork shared_work(const model::Config& config) {
  return {static_cast<double>(3 * config.hidden_size * config.expert_width + config.num_experts * config.hidden_size),
          0.0, 0.0};
}

PartWork mixing_work(const model::Config& config) {
  const int64_t n = config.num_streams;
  return {static_cast<double>(n * (n + 2) * n * config.hidden_size), 0.0, 0.0};
}

PartWork head_work(const model::Config& config) {
  const int64_t n = config.num_streams;
  return {static_cast<double>(config.vocab_size * config.hidden_size + n * n * config.hidden_size), 0.0, 0.0};
}

PartWork layer_work(const model::Config& config, const model::LayerSpec& layer, int64_t tokens) {
  return attention_work(config, layer, tokens) + routed_work(config) + shared_work(config) + mixing_work(config) +
         mixing_work(config);
}

double needed_flops(const model::Config& config, int64_t tokens, bool trained, double adapter_numbers) {
  double total = head_work(config).step(trained);
  for (const model::LayerSpec& layer : config.layers) total += layer_work(config, layer, tokens).step(trained);
  return total + 6.0 * adapter_numbers;
}

}  // namespace asterism::bench
