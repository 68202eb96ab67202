#pragma once

#include <cstdint>

#include "asterism/model/config.h"

namespace asterism::bench {

/// The arithmetic that the mathematics needs for one token of a causal sequence in one part of the model, counted as
/// hf_baseline.py counts it: products with weights, and visible pairs of attention; no recomputation, nothing
/// elementwise.
struct PartWork {
  double numbers = 0.0;       // of the matrices that the token is multiplied with and that are trained or frozen
  double forward_only = 0.0;  // FLOP of the indexer, which the language-model loss does not train
  double pairs = 0.0;         // FLOP over visible pairs, forward: 4 H P each; twice as many backward

  double forward() const { return 2.0 * numbers + forward_only + pairs; }
  /// Of frozen matrices only the gradient of their input is needed.
  double backward(bool trained) const { return (trained ? 4.0 : 2.0) * numbers + 2.0 * pairs; }
  double step(bool trained) const { return forward() + backward(trained); }
};

PartWork operator+(const PartWork& a, const PartWork& b);

/// Attention without its mHC site, averaged over a sequence of `tokens`.
PartWork attention_work(const model::Config& config, const model::LayerSpec& layer, int64_t tokens);
/// Visible pairs per token of that attention.
double attention_pairs(const model::Config& config, const model::LayerSpec& layer, int64_t tokens);
/// Routed experts of one token; the shared expert and the router.
PartWork routed_work(const model::Config& config);
PartWork shared_work(const model::Config& config);
/// One mHC site: half of a layer has one.
PartWork mixing_work(const model::Config& config);
/// The final collapse and the head's matrix.
PartWork head_work(const model::Config& config);

/// Of a layer: both halves.
PartWork layer_work(const model::Config& config, const model::LayerSpec& layer, int64_t tokens);

/// A training step, FLOP per token: `needed_flops` of hf_baseline.py. `trained`: full fine-tuning; otherwise the
/// matrices are frozen and `adapter_numbers` of LoRA matrices are used by a token.
double needed_flops(const model::Config& config, int64_t tokens, bool trained, double adapter_numbers);

}  // namespace asterism::bench
