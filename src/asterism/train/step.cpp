#include "asterism/train/step.h"

#include <chrono>
#include <cmath>

#include "asterism/core/error.h"
#include "asterism/ops/linear_cross_entropy.h"

namespace asterism::train {

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Adds weight * sum / count to the total; returns sum / count for the report.
double add_term(at::Tensor& total, const at::Tensor& sum, double weight, int64_t count) {
  if (!sum.defined() || count == 0) return 0.0;
  const at::Tensor term = sum * (weight / static_cast<double>(count));
  total = total.defined() ? total + term : term;
  return sum.item<double>() / static_cast<double>(count);
}

void check_finite(double value, const char* what, const StepSettings& settings) {
  if (std::isfinite(value)) return;
  run_error("step ", settings.forward.step, ": the ", what, " is ", value,
            "; the weights are untouched. Try a lower optimizer.lr, more schedule.warmup_steps, a smaller "
            "optimizer.clip_norm, or model.compute: fp32; the last checkpoint is intact");
}

}  // namespace

StepCounts count_step(const std::vector<data::PackedRow>& rows) {
  StepCounts counts;
  counts.rows = static_cast<int64_t>(rows.size());
  for (const data::PackedRow& row : rows) {
    counts.documents += static_cast<int64_t>(row.lengths.size());
    counts.input_tokens += static_cast<int64_t>(row.ids.size());
    size_t start = 0;
    for (const int64_t length : row.lengths) {
      for (int64_t t = 1; t < length; ++t) {
        const bool trained = row.weights[start + t] > 0.0f;
        counts.trained_tokens += trained;
        counts.mtp_tokens += trained && t >= 2;
      }
      start += length;
    }
  }
  return counts;
}

model::TokenBatch to_token_batch(const std::vector<data::PackedRow>& rows, size_t begin, size_t end,
                                 int64_t sequence_length) {
  std::vector<int64_t> ids, labels, lengths, keys;
  std::vector<float> weights;
  bool weighted = false;
  for (size_t r = begin; r < end; ++r) {
    const data::PackedRow& row = rows[r];
    lengths.insert(lengths.end(), row.lengths.begin(), row.lengths.end());
    for (size_t t = 0; t < row.ids.size(); ++t) {
      const float weight = row.weights[t];
      ids.push_back(row.ids[t]);
      labels.push_back(weight > 0.0f ? row.ids[t] : ops::kIgnoredTarget);
      weights.push_back(weight);
      weighted = weighted || (weight != 0.0f && weight != 1.0f);
      keys.push_back(static_cast<int64_t>(r) * sequence_length + static_cast<int64_t>(t));
    }
  }
  model::TokenBatch batch = model::make_token_batch(at::tensor(ids, at::kLong), at::tensor(labels, at::kLong), lengths,
                                                    weighted ? at::tensor(weights, at::kFloat) : at::Tensor());
  batch.token_key_T = at::tensor(keys, at::kLong);
  return batch;
}

StepResult run_step(const model::Model& model, const std::vector<data::PackedRow>& rows, const StepSettings& settings) {
  StepResult result;
  result.counts = count_step(rows);
  const StepCounts& counts = result.counts;
  if (counts.trained_tokens == 0) {
    input_error("step ", settings.forward.step, ": none of its ", counts.rows, " rows has a token to train; check the ",
                "labels or the loss weights of the data");
  }
  const int64_t num_layers = model.config.num_layers(), num_experts = model.config.num_experts;
  result.expert_load_LE = at::zeros({num_layers, num_experts}, at::kLong);
  for (size_t begin = 0; begin < rows.size(); begin += settings.micro_batch) {
    const size_t end = std::min(rows.size(), begin + static_cast<size_t>(settings.micro_batch));
    const auto forward_start = std::chrono::steady_clock::now();
    const model::TokenBatch batch = to_token_batch(rows, begin, end, settings.sequence_length);
    const model::LossSums sums = model::forward_loss(model, batch, settings.forward, settings.loss);
    at::Tensor total;
    result.loss += add_term(total, sums.token_loss, 1.0, counts.trained_tokens);
    result.mtp_loss += add_term(total, sums.mtp_loss, settings.mtp_weight, counts.mtp_tokens);
    result.balance_loss += add_term(total, sums.balance_loss, settings.balance_weight, counts.documents);
    result.indexer_loss += add_term(total, sums.indexer_loss, 1.0, counts.input_tokens);
    check_finite(result.loss, "loss", settings);
    check_finite(result.mtp_loss + result.balance_loss + result.indexer_loss, "sum of the auxiliary losses", settings);
    result.forward_seconds += seconds_since(forward_start);
    const auto backward_start = std::chrono::steady_clock::now();
    if (total.requires_grad()) total.backward();
    result.backward_seconds += seconds_since(backward_start);
    // Counted from the decisions, once a step: recomputation runs routers again but decides nothing.
    for (int64_t i = 0; i < num_layers; ++i) {
      const at::Tensor chosen = sums.decisions[i]->expert_TK.flatten();
      result.expert_load_LE[i] += at::bincount(chosen, {}, num_experts);
    }
  }
  return result;
}

LoadReport expert_load_report(const at::Tensor& expert_load_LE) {
  LoadReport report;
  const at::Tensor load_LE = expert_load_LE.to(at::kDouble);
  const at::Tensor ideal_L1 = load_LE.mean(1, /*keepdim=*/true).clamp_min(1e-12);
  const at::Tensor relative_LE = load_LE / ideal_L1;
  report.std = (relative_LE - 1.0).square().mean(1).sqrt().mean().item<double>();
  report.dead_experts = expert_load_LE.eq(0).sum().item<int64_t>();
  return report;
}

}  // namespace asterism::train
