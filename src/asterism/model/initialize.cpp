#include "asterism/model/initialize.h"

#include <ATen/Parallel.h>

#include "asterism/core/rng.h"

namespace asterism::model {

namespace {

bool starts_at_one(const TensorSpec& spec) {
  if (spec.role == TensorRole::kNorm) return true;
  return spec.name.ends_with("hc.scale") || spec.name.ends_with("hc_scale");
}

bool starts_random(const TensorSpec& spec) {
  if (spec.role == TensorRole::kMatrix) return true;
  return spec.name.ends_with("hc.fn") || spec.name.ends_with("hc_fn");
}

RandomStream stream_of(const TensorSpec& spec, uint64_t seed) {
  return {seed, "init:" + spec.name};
}

}  // namespace

void initial_values(const Config& config, const TensorSpec& spec, uint64_t seed, int64_t first, int64_t count,
                    float* out) {
  if (!starts_random(spec)) {
    std::fill_n(out, count, starts_at_one(spec) ? 1.0F : 0.0F);
    return;
  }
  const RandomStream stream = stream_of(spec, seed);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(stream.normal(first + i) * config.initializer_range);
  }
}

// Row by row the first K of a random permutation of the experts (Fisher-Yates).
void initial_table(const Config& config, const TensorSpec& spec, uint64_t seed, int64_t first, int64_t rows,
                   int64_t* out) {
  const RandomStream stream = stream_of(spec, seed);
  const int64_t k = spec.shape[1], num_experts = config.num_experts;
  std::vector<int64_t> experts(num_experts);
  for (int64_t row = first; row < first + rows; ++row, out += k) {
    for (int64_t e = 0; e < num_experts; ++e) experts[e] = e;
    for (int64_t slot = 0; slot < k; ++slot) {
      std::swap(experts[slot], experts[slot + stream.below(num_experts - slot, row * k + slot)]);
      out[slot] = experts[slot];
    }
  }
}

Weights initialize_weights(const Config& config, uint64_t seed, at::ScalarType storage) {
  Weights weights;
  for_each_tensor(config, weights, [&](const TensorSpec& spec, at::Tensor& tensor) {
    tensor = at::empty(spec.shape, spec.role == TensorRole::kTable ? at::kLong : at::kFloat);
    if (spec.role == TensorRole::kTable) {
      auto* out = tensor.data_ptr<int64_t>();
      at::parallel_for(0, spec.shape[0], 1024, [&](int64_t begin, int64_t end) {
        initial_table(config, spec, seed, begin, end - begin, out + begin * spec.shape[1]);
      });
      return;
    }
    auto* out = tensor.data_ptr<float>();
    at::parallel_for(0, tensor.numel(), 4096, [&](int64_t begin, int64_t end) {
      initial_values(config, spec, seed, begin, end - begin, out + begin);
    });
    if (spec.role == TensorRole::kMatrix) tensor = tensor.to(storage);
  });
  return weights;
}

}  // namespace asterism::model
