#include "asterism/train/loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "asterism/core/error.h"
#include "asterism/core/log.h"
#include "asterism/core/memory.h"
#include "asterism/core/progress.h"
#include "asterism/data/step_reader.h"
#include "asterism/train/checkpointer.h"
#include "asterism/train/rank_metrics.h"
#include "asterism/train/run_ranks.h"
#include "asterism/train/schedule.h"
#include "asterism/train/shared_parameters.h"
#include "asterism/train/step.h"
#include "asterism/train/tensorboard.h"

namespace asterism::train {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

StepSettings step_settings(const LoopInputs& inputs) {
  const Recipe& recipe = inputs.recipe;
  StepSettings settings;
  settings.forward.compute = inputs.compute;
  settings.forward.indexer_kl = recipe.model.indexer == IndexerMode::kKl;
  settings.forward.balance = recipe.train.balance_loss > 0.0;
  settings.forward.seed = recipe.seed;
  settings.forward.training = true;
  settings.loss.recompute = recipe.train.recompute;
  settings.loss.mtp = recipe.model.mtp_weight > 0.0;
  settings.mtp_weight = recipe.model.mtp_weight;
  settings.balance_weight = recipe.train.balance_loss;
  settings.micro_batch = recipe.train.micro_batch;
  settings.sequence_length = recipe.data.sequence_length;
  return settings;
}

// One run's moving parts, so that the loop below reads as a list of what a step does.
class Loop {
 public:
  explicit Loop(const LoopInputs& inputs)
      : inputs_(inputs),
        recipe_(inputs.recipe),
        settings_(step_settings(inputs)),
        ranks_(inputs.shared),
        optimizer_(inputs.parameters, inputs.recipe.optimizer),
        checkpoints_(inputs, optimizer_) {}

  LoopSummary run() {
    const int64_t done = checkpoints_.resume();
    summary_.first_step = summary_.last_step = done;
    summary_.state_folder = checkpoints_.state_folder();
    if (done == inputs_.steps) return summary_;
    std::optional<MetricsFile> metrics;
    std::optional<TensorboardWriter> board;
    if (ranks_.is_first()) {
      checkpoints_.prepare(done);
      if (inputs_.on_start) inputs_.on_start();
      metrics.emplace(inputs_.folder.metrics_file(), done);
      check_metrics(*metrics);
      if (recipe_.log.tensorboard) board.emplace(inputs_.folder.tensorboard_folder(), done);
    }
    if (done == 0) summary_.eval_loss_before = evaluation_loss();
    const data::ReaderOptions reading{.rank = ranks_.rank(),
                                      .ranks = ranks_.size(),
                                      .rows_at_once = recipe_.train.micro_batch,
                                      .workers = recipe_.data.workers};
    rows_.emplace(inputs_.train_data, reading, checkpoints_.first_row());
    Progress progress({.label = "train", .unit = "steps", .total = inputs_.steps, .first = done});
    if (inputs_.shared != nullptr) rank_metrics_.emplace(*inputs_.shared);
    const auto start = Clock::now();
    for (int64_t step = done; step < inputs_.steps; ++step) {
      ranks_.set_step(step + 1);
      Json row = train_step(step);
      const bool last = step + 1 == inputs_.steps;
      const bool evaluate_now = recipe_.eval_every > 0 && (step + 1) % recipe_.eval_every == 0;
      if (evaluate_now || last) {
        const auto loss = evaluation_loss();
        if (loss) row["eval_loss"] = *loss;
        if (loss) summary_.eval_loss_after = loss;
      }
      summary_.last_step = step + 1;
      const RunRanks::Requests requests = ranks_.any(own_requests());
      summary_.stopped = !last && requests.stop;
      const bool save_now = requests.save || is_save_due(step + 1) || last || summary_.stopped;
      if (save_now) row["checkpoint_seconds"] = checkpoints_.take(step + 1, rows_->position());
      if (metrics && (save_now || evaluate_now || (step + 1) % recipe_.log.every == 0)) {
        metrics->append(row);
        if (board) board->add(step + 1, row);
      }
      if (save_now && metrics) checkpoints_.write(metrics->bytes());
      progress.update(step + 1, text("loss ", row["loss"].get<double>()));
      if (summary_.stopped) break;
      checkpoints_.check();
    }
    checkpoints_.finish();
    summary_.state_folder = checkpoints_.state_folder();
    progress.finish();
    summary_.seconds = seconds_since(start);
    return summary_;
  }

 private:
  RunRanks::Requests own_requests() const {
    return {.stop = inputs_.stop_requested && inputs_.stop_requested(),
            .save = inputs_.save_requested && inputs_.save_requested()};
  }

  bool is_save_due(int64_t step) const { return recipe_.checkpoint.every > 0 && step % recipe_.checkpoint.every == 0; }

  // Lines may be lost when a machine crashes or a user edits the file; the run itself is not concerned.
  void check_metrics(const MetricsFile& metrics) const {
    const auto expected = checkpoints_.metrics_bytes();
    if (!expected || *expected == metrics.bytes()) return;
    log_warning(inputs_.folder.metrics_file().string(), ": has ", metrics.bytes(),
                " bytes up to the checkpoint, which ", "recorded ", *expected, ": lines were lost or changed");
  }

  Json train_step(int64_t step) {
    const auto start = Clock::now();
    settings_.forward.step = static_cast<uint64_t>(step);
    const int64_t epoch = inputs_.train_data.epoch_at(rows_->position());
    const StepResult result = forward_and_backward(step);
    const GradientReport gradient =
        inputs_.shared != nullptr ? inspect_gradients(*inputs_.shared) : inspect_gradients(optimizer_.parameters());
    if (!gradient.non_finite.empty() || !std::isfinite(gradient.norm)) {
      run_error("step ", step + 1, ": the gradient is not finite, first in ", gradient.non_finite,
                "; the weights are untouched. Try a lower optimizer.lr, more schedule.warmup_steps or model.compute: "
                "fp32; the last checkpoint is intact");
    }
    const double lr = learning_rate(recipe_.optimizer.lr, recipe_.schedule, step, inputs_.steps);
    if (inputs_.shared != nullptr) take_gradients(optimizer_.parameters(), *inputs_.shared);
    optimizer_.step(lr, clip_factor(gradient.norm, recipe_.optimizer.clip_norm));
    if (inputs_.shared != nullptr) inputs_.shared->drop_gradients();
    const double seconds = seconds_since(start);
    if (step == summary_.first_step) summary_.first_loss = result.loss;
    summary_.last_loss = result.loss;
    summary_.input_tokens += result.counts.input_tokens;
    summary_.trained_tokens += result.counts.trained_tokens;
    return metrics_row(step, epoch, result, gradient, lr, seconds);
  }

  // An operator that refuses its input (a NaN score) knows nothing of steps: add which one it was and what to try.
  StepResult forward_and_backward(int64_t step) {
    try {
      return run_step(inputs_.model, rows_->next(), settings_, inputs_.shared);
    } catch (const c10::Error& error) {
      run_error(
          "step ", step + 1, ": ", user_message(error),
          "; the weights are untouched. If values are not finite, try a lower optimizer.lr or model.compute: fp32; "
          "the last checkpoint is intact");
    }
  }

  Json metrics_row(int64_t step, int64_t epoch, const StepResult& result, const GradientReport& gradient, double lr,
                   double seconds) {
    const LoadReport load = expert_load_report(result.expert_load_LE);
    Json row;
    row["step"] = step + 1;
    row["epoch"] = epoch;
    row["loss"] = result.loss;
    if (settings_.loss.mtp) row["mtp_loss"] = result.mtp_loss;
    if (settings_.forward.balance) row["balance_loss"] = result.balance_loss;
    if (settings_.forward.indexer_kl) row["indexer_loss"] = result.indexer_loss;
    row["tokens"] = result.counts.trained_tokens;
    row["input_tokens"] = result.counts.input_tokens;
    row["rows"] = result.counts.rows;
    row["lr"] = lr;
    row["grad_norm"] = gradient.norm;
    row["seconds"] = seconds;
    row["tokens_per_second"] = static_cast<double>(result.counts.input_tokens) / seconds;
    row["peak_memory_bytes"] = peak_resident_bytes();
    row["expert_load_std"] = load.std;
    row["dead_experts"] = load.dead_experts;
    row["expert_load_max"] = load.largest_L;
    if (rank_metrics_) row.update(rank_metrics_->of_step(seconds));
    return row;
  }

  std::optional<double> evaluation_loss() const {
    if (inputs_.eval_data == nullptr) return std::nullopt;
    return evaluate(inputs_.model, *inputs_.eval_data, inputs_.compute, recipe_.data.sequence_length,
                    recipe_.data.workers, inputs_.shared)
        .loss();
  }

  const LoopInputs& inputs_;
  const Recipe& recipe_;
  StepSettings settings_;
  RunRanks ranks_;
  std::optional<RankMetrics> rank_metrics_;  // with several ranks
  AdamW optimizer_;
  Checkpointer checkpoints_;
  std::optional<data::StepReader> rows_;
  LoopSummary summary_;
};

}  // namespace

namespace {

// This rank's part of an evaluation. Rows go to the ranks in turn, and all run the same number of passes, some without
// a row; the losses are added in the order of the rows, as one rank would.
Evaluation evaluate_shared(const model::Model& model, const data::DataSet& data, at::ScalarType compute,
                           int64_t sequence_length, int64_t workers, dist::Comm& world) {
  Evaluation total;
  std::vector<double> losses;
  data::EvaluationReader reader(data, workers);
  for (auto rows = reader.next(); !rows.empty(); rows = reader.next()) {
    for (size_t first = 0; first < rows.size(); first += static_cast<size_t>(world.size())) {
      const size_t row = first + static_cast<size_t>(world.rank());
      Evaluation own;
      evaluate_rows(model, {row < rows.size() ? rows[row] : data::PackedRow()}, compute, sequence_length, own);
      losses.push_back(own.loss_sum);
      total.tokens += own.tokens;
      total.rows += own.rows;
      total.correct += own.correct;
    }
  }
  const at::Tensor counts = at::tensor({total.tokens, total.rows, total.correct}, at::kLong);
  world.all_reduce(counts, dist::Reduction::kSum, "evaluation counts");
  const at::Tensor own = at::tensor(losses, at::kDouble), all = at::empty({world.size(), own.numel()}, at::kDouble);
  world.all_gather(all, own, "evaluation losses");
  const at::Tensor in_order = all.t().contiguous();
  for (int64_t i = 0; i < in_order.numel(); ++i) total.loss_sum += in_order.const_data_ptr<double>()[i];
  total.tokens = counts[0].item<int64_t>();
  total.rows = counts[1].item<int64_t>();
  total.correct = counts[2].item<int64_t>();
  return total;
}

}  // namespace

LoopSummary run_loop(const LoopInputs& inputs) {
  return Loop(inputs).run();
}

Evaluation evaluate(const model::Model& model, const data::DataSet& data, at::ScalarType compute,
                    int64_t sequence_length, int64_t workers, parallel::ShardedModel* shared) {
  if (shared != nullptr) {
    return evaluate_shared(model, data, compute, sequence_length, workers, *shared->comms().world);
  }
  Evaluation evaluation;
  data::EvaluationReader reader(data, workers);
  for (auto rows = reader.next(); !rows.empty(); rows = reader.next()) {
    evaluate_rows(model, rows, compute, sequence_length, evaluation);
  }
  return evaluation;
}

}  // namespace asterism::train
