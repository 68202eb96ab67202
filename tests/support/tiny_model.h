#pragma once

#include "asterism/model/model.h"

namespace asterism::testing {

/// config.json of a tiny model that has every path: window-only, sparse and heavy attention, hash and learned routers,
/// clamping that really clamps, YaRN, an MTP block.
nlohmann::ordered_json tiny_config_json();
model::Config tiny_config();

/// Random weights far from the default initialisation: norms, sinks, biases and mHC parameters all matter.
model::Model tiny_model(const model::Config& config, at::ScalarType dtype, uint64_t seed = 1);
inline model::Model tiny_model(at::ScalarType dtype, uint64_t seed = 1) {
  return tiny_model(tiny_config(), dtype, seed);
}

/// Random ids (labels = ids) in documents of the given lengths.
model::TokenBatch tiny_batch(const model::Config& config, const std::vector<int64_t>& lengths, uint64_t seed = 1);

/// Gives every trainable tensor a gradient; (name, leaf) pairs.
std::vector<std::pair<std::string, at::Tensor>> record_gradients(model::Model& model);

}  // namespace asterism::testing
