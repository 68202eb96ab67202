#include "asterism/train/generate.h"

#include <algorithm>
#include <cmath>

#include "asterism/core/rng.h"
#include "asterism/ops/linear_cross_entropy.h"
#include "asterism/ops/matmul.h"

namespace asterism::train {

namespace {

at::Tensor next_log_probabilities(const model::Model& model, const std::vector<int64_t>& ids, at::ScalarType compute) {
  const int64_t length = static_cast<int64_t>(ids.size());
  const model::TokenBatch batch =
      model::make_token_batch(at::tensor(ids, at::kLong), at::full({length}, ops::kIgnoredTarget, at::kLong), {length});
  model::ForwardOptions options;
  options.compute = compute;
  const auto context = model::make_stream_context(model.config, batch, options, model.placement);
  model::LossSums unused;
  const at::Tensor x_TND = model::forward_trunk(model, context, model::Recompute::kBlocks, unused);
  const at::Tensor logits_1V =
      model::run_head(model, x_TND.slice(0, length - 1), [&](const at::Tensor& last_1D, const at::Tensor& head_VD) {
        return ops::matmul_nt(last_1D, head_VD, ops::sum_type(compute));
      });
  return at::log_softmax(logits_1V.to(at::kDouble), 1).squeeze(0);
}

}  // namespace

int64_t sample_token(const at::Tensor& log_probability_V, double temperature, double top_p, double uniform) {
  if (temperature == 0.0) return log_probability_V.argmax().item<int64_t>();
  const at::Tensor tempered_V = at::softmax(log_probability_V / temperature, 0).contiguous();
  const double* p = tempered_V.data_ptr<double>();
  std::vector<int64_t> order(tempered_V.numel());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [p](int64_t a, int64_t b) { return p[a] > p[b]; });
  double mass = 0.0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || mass < top_p)) mass += p[order[count++]];
  double target = uniform * mass;
  for (size_t i = 0; i + 1 < count; ++i) {
    target -= p[order[i]];
    if (target < 0.0) return order[i];
  }
  return order[count - 1];
}

std::vector<GeneratedToken> generate(const model::Model& model, const std::vector<int64_t>& prompt,
                                     const GenerateOptions& options,
                                     const std::function<bool(const GeneratedToken&)>& on_token) {
  TORCH_CHECK(!prompt.empty(), "[generate] the prompt needs at least one token");
  const at::NoGradGuard no_grad;
  const RandomStream stream(options.seed, "generate");
  std::vector<int64_t> ids = prompt;
  std::vector<GeneratedToken> tokens;
  for (int64_t k = 0; k < options.max_tokens; ++k) {
    const at::Tensor log_probability_V = next_log_probabilities(model, ids, options.compute);
    GeneratedToken token;
    token.id = sample_token(log_probability_V, options.temperature, options.top_p, stream.uniform(k));
    token.log_probability = log_probability_V[token.id].item<double>();
    ids.push_back(token.id);
    tokens.push_back(token);
    const bool wanted = !on_token || on_token(token);
    const bool stop = std::find(options.stop_ids.begin(), options.stop_ids.end(), token.id) != options.stop_ids.end();
    if (stop || !wanted) break;
  }
  return tokens;
}

}  // namespace asterism::train
