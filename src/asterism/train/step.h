#pragma once

#include <vector>

#include "asterism/data/sample.h"
#include "asterism/model/model.h"
#include "asterism/parallel/sharded_model.h"
#include "asterism/train/optimizer.h"
#include "asterism/train/recipe.h"

namespace asterism::train {

/// Weights and switches of the losses that make up a step.
struct StepSettings {
  model::ForwardOptions forward;
  model::LossOptions loss;
  double mtp_weight = 0.0;
  double balance_weight = 0.0;
  int64_t micro_batch = 1;         // rows computed at once
  int64_t sequence_length = 4096;  // names tokens for dropout: row * length + position
};

/// Counts over the whole step, known before the first forward pass: every sum is divided once.
struct StepCounts {
  int64_t rows = 0;
  int64_t documents = 0;
  int64_t input_tokens = 0;
  int64_t trained_tokens = 0;
  int64_t mtp_tokens = 0;
};

struct StepResult {
  StepCounts counts;
  double loss = 0.0;          // mean over trained tokens
  double mtp_loss = 0.0;      // mean over MTP targets
  double balance_loss = 0.0;  // mean over documents, summed over layers
  double indexer_loss = 0.0;  // mean over query tokens, summed over layers
  double forward_seconds = 0.0;
  double backward_seconds = 0.0;
  at::Tensor expert_load_LE;  // int64 [layers, E], (token, slot) assignments of the step
};

StepCounts count_step(const std::vector<data::PackedRow>& rows);

/// The rows [begin, end) as one token stream; `first_row` is the number of row `begin` in the step, which names its
/// tokens for dropout. No rows make a stream without tokens.
model::TokenBatch to_token_batch(const std::vector<data::PackedRow>& rows, size_t begin, size_t end,
                                 int64_t sequence_length, int64_t first_row);

/// Forward and backward of one optimizer step: the gradients of
///   sum of token losses / trained tokens + weights * (MTP / its count + balance / documents + indexer / tokens)
/// are accumulated over the micro-batches. Nothing is averaged twice, so splitting the rows differently changes
/// rounding only. RunError when a loss is not finite (weights untouched); InputError when the step has no trained
/// token.
/// With `shared`, the model whose weights several ranks share, `rows` are those of this rank: micro-batches go to the
/// ranks in turn. All ranks run the same number of passes, without tokens where they have no rows left, and get the
/// same result, that of the whole step; gradients are ready to use.
StepResult run_step(const model::Model& model, const std::vector<data::PackedRow>& rows, const StepSettings& settings,
                    parallel::ShardedModel* shared = nullptr);

/// Mean over layers of the standard deviation of load / ideal load, and experts without a token over all layers.
struct LoadReport {
  double std = 0.0;
  int64_t dead_experts = 0;
  std::vector<double> largest_L;  // of each layer: the load of its busiest expert / ideal
};
LoadReport expert_load_report(const at::Tensor& expert_load_LE);

}  // namespace asterism::train
