#include "asterism/train/step.h"

#include <chrono>
#include <cmath>
#include <cstring>

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

// The reported losses of one micro-batch, each divided by the count of the whole step.
struct Losses {
  double token = 0.0, mtp = 0.0, balance = 0.0, indexer = 0.0;
};

void add_losses(StepResult& result, const Losses& losses) {
  result.loss += losses.token;
  result.mtp_loss += losses.mtp;
  result.balance_loss += losses.balance;
  result.indexer_loss += losses.indexer;
}

// Micro-batch m is number m / ranks of rank m % ranks: added in the order of m, as one rank would.
void add_losses_of_all(StepResult& result, const std::vector<Losses>& own, dist::Comm& world) {
  const auto rounds = static_cast<int64_t>(own.size());
  const at::Tensor mine = at::empty({rounds, 4}, at::kDouble);
  std::memcpy(mine.mutable_data_ptr(), own.data(), mine.nbytes());
  const at::Tensor all = at::empty({world.size(), rounds, 4}, at::kDouble);
  world.all_gather(all, mine, "losses");
  const auto* losses = static_cast<const Losses*>(all.const_data_ptr());
  for (int64_t round = 0; round < rounds; ++round) {
    for (int r = 0; r < world.size(); ++r) add_losses(result, losses[r * rounds + round]);
  }
}

StepCounts sum_counts(const StepCounts& own, dist::Comm& world) {
  const at::Tensor sums =
      at::tensor({own.rows, own.documents, own.input_tokens, own.trained_tokens, own.mtp_tokens}, at::kLong);
  world.all_reduce(sums, dist::Reduction::kSum, "counts of the step");
  const int64_t* all = sums.const_data_ptr<int64_t>();
  return {all[0], all[1], all[2], all[3], all[4]};
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
                                 int64_t sequence_length, int64_t first_row) {
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
      keys.push_back((first_row + static_cast<int64_t>(r - begin)) * sequence_length + static_cast<int64_t>(t));
    }
  }
  model::TokenBatch batch = model::make_token_batch(at::tensor(ids, at::kLong), at::tensor(labels, at::kLong), lengths,
                                                    weighted ? at::tensor(weights, at::kFloat) : at::Tensor());
  batch.token_key_T = at::tensor(keys, at::kLong);
  return batch;
}

StepResult run_step(const model::Model& model, const std::vector<data::PackedRow>& rows, const StepSettings& settings,
                    parallel::ShardedModel* shared) {
  dist::Comm* world = shared != nullptr ? shared->comms().world.get() : nullptr;
  const int64_t rank = world != nullptr ? world->rank() : 0, ranks = world != nullptr ? world->size() : 1;
  StepResult result;
  result.counts = count_step(rows);
  if (world != nullptr) result.counts = sum_counts(result.counts, *world);
  const StepCounts& counts = result.counts;
  if (counts.trained_tokens == 0) {
    input_error("step ", settings.forward.step, ": none of its ", counts.rows, " rows has a token to train; check the ",
                "labels or the loss weights of the data");
  }
  const int64_t num_layers = model.config.num_layers(), num_experts = model.config.num_experts;
  result.expert_load_LE = at::zeros({num_layers, num_experts}, at::kLong);
  const int64_t micro_batches = (counts.rows + settings.micro_batch - 1) / settings.micro_batch;
  const int64_t rounds = (micro_batches + ranks - 1) / ranks;
  std::vector<Losses> losses;
  for (int64_t round = 0; round < rounds; ++round) {
    const size_t begin = std::min(rows.size(), static_cast<size_t>(round * settings.micro_batch));
    const size_t end = std::min(rows.size(), begin + static_cast<size_t>(settings.micro_batch));
    const auto forward_start = std::chrono::steady_clock::now();
    const int64_t first_row = (round * ranks + rank) * settings.micro_batch;
    const model::TokenBatch batch = to_token_batch(rows, begin, end, settings.sequence_length, first_row);
    const model::LossSums sums = model::forward_loss(model, batch, settings.forward, settings.loss);
    at::Tensor total;
    Losses own;
    own.token = add_term(total, sums.token_loss, 1.0, counts.trained_tokens);
    own.mtp = add_term(total, sums.mtp_loss, settings.mtp_weight, counts.mtp_tokens);
    own.balance = add_term(total, sums.balance_loss, settings.balance_weight, counts.documents);
    own.indexer = add_term(total, sums.indexer_loss, 1.0, counts.input_tokens);
    check_finite(own.token, "loss", settings);
    check_finite(own.mtp + own.balance + own.indexer, "sum of the auxiliary losses", settings);
    losses.push_back(own);
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
  if (shared == nullptr) {
    for (const Losses& own : losses) add_losses(result, own);
    return result;
  }
  add_losses_of_all(result, losses, *world);
  world->all_reduce(result.expert_load_LE, dist::Reduction::kSum, "expert load");
  shared->finish_gradients();
  return result;
}

LoadReport expert_load_report(const at::Tensor& expert_load_LE) {
  LoadReport report;
  const at::Tensor load_LE = expert_load_LE.to(at::kDouble);
  const at::Tensor ideal_L1 = load_LE.mean(1, /*keepdim=*/true).clamp_min(1e-12);
  const at::Tensor relative_LE = load_LE / ideal_L1;
  report.std = (relative_LE - 1.0).square().mean(1).sqrt().mean().item<double>();
  report.dead_experts = expert_load_LE.eq(0).sum().item<int64_t>();
  const at::Tensor largest_L = relative_LE.amax(1);
  for (int64_t i = 0; i < largest_L.size(0); ++i) report.largest_L.push_back(largest_L[i].item<double>());
  return report;
}

}  // namespace asterism::train
