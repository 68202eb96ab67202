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
    const model::TokenBatch batch = to_token_batch(rows, r, r + 1, sequence_length);
    const auto context = model::make_stream_context(model.config, batch, options);
    model::LossSums unused;
    const at::Tensor x_TND = model::forward_trunk(model, context, model::Recompute::kBlocks, unused);
    const ops::CrossEntropyScores scores = ops::score_cross_entropy(
        model::final_hidden(model, x_TND), model.weights.lm_head, batch.target_T, batch.weight_T);
    evaluation.loss_sum += scores.loss_sum;
    evaluation.correct += scores.correct;
    evaluation.tokens += batch.trained_tokens();
    ++evaluation.rows;
  }
}

}  // namespace asterism::train
