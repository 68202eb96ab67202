#include "asterism/model/initialize.h"

#include <ATen/Parallel.h>

#include "asterism/core/rng.h"

namespace asterism::model {

namespace {

at::Tensor normal(const TensorSpec& spec, const RandomStream& stream, double standard_deviation) {
  at::Tensor values = at::empty(spec.shape, at::kFloat);
  fill_normal(stream, values.data_ptr<float>(), values.numel(), standard_deviation);
  return values;
}

// Row by row the first K of a random permutation of the experts (Fisher-Yates).
at::Tensor distinct_experts(const TensorSpec& spec, const RandomStream& stream, int64_t num_experts) {
  const int64_t rows = spec.shape[0], k = spec.shape[1];
  at::Tensor table = at::empty(spec.shape, at::kLong);
  auto* out = table.data_ptr<int64_t>();
  at::parallel_for(0, rows, 1024, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> experts(num_experts);
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t e = 0; e < num_experts; ++e) experts[e] = e;
      for (int64_t slot = 0; slot < k; ++slot) {
        std::swap(experts[slot], experts[slot + stream.below(num_experts - slot, row * k + slot)]);
        out[row * k + slot] = experts[slot];
      }
    }
  });
  return table;
}

bool starts_at_one(const TensorSpec& spec) {
  if (spec.role == TensorRole::kNorm) return true;
  return spec.name.ends_with("hc.scale") || spec.name.ends_with("hc_scale");
}

bool starts_random(const TensorSpec& spec) {
  if (spec.role == TensorRole::kMatrix) return true;
  return spec.name.ends_with("hc.fn") || spec.name.ends_with("hc_fn");
}

}  // namespace

Weights initialize_weights(const Config& config, uint64_t seed, at::ScalarType storage) {
  Weights weights;
  for_each_tensor(config, weights, [&](const TensorSpec& spec, at::Tensor& tensor) {
    const RandomStream stream(seed, "init:" + spec.name);
    if (spec.role == TensorRole::kTable) {
      tensor = distinct_experts(spec, stream, config.num_experts);
    } else if (starts_random(spec)) {
      tensor = normal(spec, stream, config.initializer_range);
      if (spec.role == TensorRole::kMatrix) tensor = tensor.to(storage);
    } else {
      tensor = starts_at_one(spec) ? at::ones(spec.shape, at::kFloat) : at::zeros(spec.shape, at::kFloat);
    }
  });
  return weights;
}

}  // namespace asterism::model
