#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "asterism/model/model.h"

namespace asterism::train {

struct GenerateOptions {
  int64_t max_tokens = 128;
  double temperature = 0.0;  // 0 = greedy
  double top_p = 1.0;        // smallest set of most probable tokens with at least this mass
  uint64_t seed = 0;
  at::ScalarType compute = at::kFloat;
  std::vector<int64_t> stop_ids;  // generation ends after one of these
};

struct GeneratedToken {
  int64_t id = 0;
  double log_probability = 0.0;  // under the model, temperature 1, before top_p
};

/// Continues `prompt` (at least one token) and calls `on_token` for each new token, the stop token included; stops when
/// it returns false. Correct rather than fast: the whole sequence is run again for every token. MTP is not used.
/// Token k is drawn with number k of the stream (seed, "generate"), so the same call gives the same text.
std::vector<GeneratedToken> generate(const model::Model& model, const std::vector<int64_t>& prompt,
                                     const GenerateOptions& options,
                                     const std::function<bool(const GeneratedToken&)>& on_token = {});

/// Draws from log-probabilities [V] (fp64) with a uniform number in [0, 1): greedy at temperature 0, otherwise by
/// inverse distribution over the top_p set in order of falling probability, ties to the smaller id.
int64_t sample_token(const at::Tensor& log_probability_V, double temperature, double top_p, double uniform);

}  // namespace asterism::train
