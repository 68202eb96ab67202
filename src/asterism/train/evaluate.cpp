#include "asterism/train/evaluate.h"

#include <cmath>

#include "asterism/ops/linear_cross_entropy.h"
#include "asterism/train/step.h"

namespace asterism::train {

double Evaluation::loss() const {
  return tokens > 0 ? loss_sum / static_cast<double>(tokens) : 0.0;
}

double Evaluation::perplexity() const {
  return std::exp(loss());
}

double Evaluation::accuracy() const {
  return tokens > 0 ? static_cast<double>(correct) / static_cast<double>(tokens) : 0.0;
}

void evaluate_rows(const model::Model& model, const std::vector<data::PackedRow>& rows, at::ScalarType compute,
                   int64_t sequence_length, Evaluation& evaluation) {
  const at::NoGradGuard no_grad;
  model::ForwardOptions options;
  options.compute = compute;
  for (size_t r = 0; r < rows.size(); ++r) {
    const model::TokenBatch batch = to_token_batch(rows, r, r + 1, sequence_length, static_cast<int64_t>(r));
    const auto context = model::make_stream_context(model.config, batch, options, model.placement);
    model::LossSums unused;
    const at::Tensor x_TND = model::forward_trunk(model, context, model::Recompute::kBlocks, unused);
    ops::CrossEntropyScores scores;
    model::run_head(model, x_TND, [&](const at::Tensor& hidden_TD, const at::Tensor& head_VD) {
      scores = ops::score_cross_entropy(hidden_TD, head_VD, batch.target_T, batch.weight_T);
      return hidden_TD;
    });
    evaluation.loss_sum += scores.loss_sum;
    evaluation.correct += scores.correct;
    evaluation.tokens += batch.trained_tokens();
    evaluation.rows += !rows[r].ids.empty();
  }
}

}  // namespace asterism::train
