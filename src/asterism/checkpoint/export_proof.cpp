#include "asterism/checkpoint/export_proof.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "asterism/checkpoint/binding.h"
#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/merged_weights.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/core/error.h"
#include "asterism/core/progress.h"
#include "asterism/core/rng.h"
#include "asterism/model/model.h"
#include "asterism/model/mtp.h"
#include "asterism/ops/matmul.h"

namespace asterism::checkpoint {
namespace fs = std::filesystem;
using Decisions = std::vector<std::shared_ptr<model::LayerDecisions>>;

namespace {

constexpr double kNoEffect = 1e-7;       // less than one rounding of an fp32 logit
constexpr double kTolerance = 1e-5;      // of fp32 sums in another order, for up to
constexpr int64_t kToleranceLayers = 8;  // so many layers; rounding adds up over more
constexpr double kShareOfEffect =
    1e-3;  // the update itself is summed in another order; a wrong one is off by all of it
constexpr int64_t kLongestDocument = 512;

model::Model load(const fs::path& folder) {
  model::Model model{.config = model::read_config(folder / "config.json"), .weights = {}};
  model.weights = read_weights(folder, model.config, {.packed = true}).weights;
  return model;
}

model::TokenBatch batch_of(const ProofInputs& inputs) {
  const at::Tensor id_T = at::tensor(inputs.ids, at::kLong);
  return model::make_token_batch(id_T, id_T, inputs.lengths);
}

at::Tensor head(const at::Tensor& hidden_TD, const at::Tensor& head_VD) {
  return ops::matmul_nt(hidden_TD, head_VD, at::kFloat);
}

/// Passes over the model, which may take long.
class Passes {
 public:
  explicit Passes(int64_t total) : progress_({.label = "prove", .unit = "passes", .total = total}) {}
  ~Passes() { progress_.finish(); }
  void count() { progress_.update(++done_); }

 private:
  Progress progress_;
  int64_t done_ = 0;
};

/// Logits of the trunk [T, V]; decisions that `decisions` holds are replayed, others put there. With `mtp`, the logits
/// of the MTP blocks follow, for there are adapters of them.
at::Tensor logits_of(const model::Model& model, const ProofInputs& inputs, Decisions& decisions, bool mtp) {
  const at::NoGradGuard no_grad;
  const auto context = model::make_stream_context(model.config, batch_of(inputs), {});
  model::LossSums sums;
  sums.decisions = decisions;
  const at::Tensor x_TND = model::forward_trunk(model, context, model::Recompute::kBlocks, sums);
  decisions = sums.decisions;
  std::vector<at::Tensor> logits = {model::run_head(model, x_TND, head)};
  if (mtp && model.config.num_mtp_layers > 0) {
    logits.push_back(
        head(model::mtp_hidden(model, x_TND, context, model::Recompute::kBlocks, sums), model.weights.lm_head));
  }
  return at::cat(logits);
}

at::Tensor logits_of(const model::Model& model, const ProofInputs& inputs) {
  Decisions own;
  return logits_of(model, inputs, own, /*mtp=*/true);
}

double logit_difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

double tolerance(const model::Config& config) {
  return kTolerance * static_cast<double>(std::max(config.num_layers(), kToleranceLayers)) / kToleranceLayers;
}

ProofCheck effect_check(double effect) {
  return {"effect", "the adapter changes the logits of the base", effect, kNoEffect, /*above=*/true};
}

std::map<std::string, Form> forms_of(const fs::path& folder, const model::Config& config) {
  std::map<std::string, Form> forms;
  const BoundCheckpoint bound = bind_checkpoint(folder, config, /*equal_experts=*/true);
  for (const BoundTensor& tensor : bound.tensors) forms[tensor.spec.name] = tensor.first().form;
  return forms;
}

uint64_t largest_in_fp32(const model::Config& config) {
  uint64_t largest = 0;
  for (const model::TensorSpec& spec : model::tensor_specs(config)) {
    largest = std::max(largest, static_cast<uint64_t>(c10::multiply_integers(spec.shape)) * sizeof(float));
  }
  return largest;
}

/// What the check "adapter" may keep in fp32: all memory but what the other parts of the proof need.
uint64_t spare_memory(const model::Config& config, const fs::path& base, const fs::path& merged, uint64_t memory) {
  const uint64_t needed = proof_memory(config, checkpoint_bytes(base), checkpoint_bytes(merged));
  return memory - std::min(memory, needed) + largest_in_fp32(config);
}

}  // namespace

ProofInputs proof_inputs(const model::Config& config, uint64_t seed) {
  int64_t ratio = 0;
  for (const model::LayerSpec& layer : config.layers) ratio = std::max(ratio, layer.ratio);
  ProofInputs inputs{.seed = seed, .ids = {}, .lengths = {}};
  inputs.lengths = {std::min(ratio + ratio / 8 + 16, kLongestDocument), 19, 6, 1};
  const int64_t count = std::accumulate(inputs.lengths.begin(), inputs.lengths.end(), int64_t{0});
  const RandomStream stream(seed, "export_proof");
  for (int64_t i = 0; i < count; ++i) {
    inputs.ids.push_back(static_cast<int64_t>(stream.below(config.vocab_size, static_cast<uint64_t>(i))));
  }
  return inputs;
}

bool Proof::holds() const {
  return std::ranges::all_of(checks, &ProofCheck::holds);
}

std::string Proof::failures() const {
  std::string lines;
  for (const ProofCheck& check : checks) {
    if (check.holds()) continue;
    lines += text(lines.empty() ? "" : "\n", "expected that ", check.what, " (a relative difference ",
                  check.above ? "above " : "of at most ", check.limit, "), found ", check.found);
  }
  return lines;
}

Proof prove_adapter(const fs::path& folder, const fs::path& adapter, const fs::path& written) {
  model::Model model = load(folder);
  const model::Weights base_weights = model.weights;  // handles: nothing below writes to the tensors
  Proof proof{.inputs = proof_inputs(model.config)};
  Passes passes(3);
  const at::Tensor base = logits_of(model, proof.inputs);
  passes.count();
  proof.adapted = static_cast<int64_t>(load_adapter(adapter, model.config, model.weights).paths.size());
  const at::Tensor adapted = logits_of(model, proof.inputs);
  passes.count();
  model.weights = base_weights;
  load_adapter(written, model.config, model.weights);
  proof.effect = logit_difference(adapted, base);
  proof.error = proof.error_own_choices = logit_difference(logits_of(model, proof.inputs), adapted);
  passes.count();
  proof.checks = {effect_check(proof.effect),
                  {"file", "the written adapter gives the logits of the exported one", proof.error, kTolerance}};
  return proof;
}

Proof prove_merged(const fs::path& folder, const fs::path& adapter, const fs::path& merged, uint64_t memory) {
  model::Model model = load(folder);
  Proof proof{.inputs = proof_inputs(model.config)};
  const auto forms = forms_of(merged, model.config);
  const bool reencoded = forms != forms_of(folder, model.config);
  Passes passes(reencoded ? 7 : 6);
  const at::Tensor base = logits_of(model, proof.inputs);
  passes.count();
  proof.adapted = static_cast<int64_t>(load_adapter(adapter, model.config, model.weights).paths.size());
  Decisions decisions;
  const at::Tensor adapted = logits_of(model, proof.inputs, decisions, /*mtp=*/true);
  passes.count();
  proof.effect = logit_difference(adapted, base);
  proof.checks = {effect_check(proof.effect)};
  const double limit = tolerance(model.config);
  if (proof.adapted > 0) {
    model::Model unrounded = model;  // handles
    proof.merged_in_fp32 =
        merge_unrounded(model.config, unrounded.weights, spare_memory(model.config, folder, merged, memory));
    if (proof.merged_in_fp32 == 0) {
      run_error("the proof has no memory for even one adapted matrix in fp32; free some and export again");
    }
    const at::Tensor logits = logits_of(unrounded, proof.inputs, decisions, /*mtp=*/false);
    proof.checks.push_back({"adapter", "merging in memory, without rounding, gives the logits of the adapter",
                            logit_difference(logits, adapted.narrow(0, 0, logits.size(0))),
                            limit + kShareOfEffect * proof.effect});
  }
  passes.count();
  merge_rounded(model.config, model.weights, forms);
  const at::Tensor expected = logits_of(model, proof.inputs);
  passes.count();
  model.weights = {};
  model = load(merged);
  const at::Tensor found = logits_of(model, proof.inputs);
  passes.count();
  const at::Tensor with_choices = logits_of(model, proof.inputs, decisions, /*mtp=*/false);
  passes.count();
  proof.error = logit_difference(with_choices, adapted.narrow(0, 0, with_choices.size(0)));
  proof.error_own_choices = logit_difference(found, adapted);
  proof.checks.push_back({"file", "the merged file gives the logits of the adapter merged in memory and rounded alike",
                          logit_difference(found, expected), limit});
  if (reencoded) {
    model.weights = {};
    model = load(folder);
    merge_rounded(model.config, model.weights, forms);
    proof.reencoding = logit_difference(logits_of(model, proof.inputs), base);
    passes.count();
  }
  return proof;
}

uint64_t proof_memory(const model::Config& config, uint64_t base_bytes, uint64_t result_bytes) {
  const uint64_t tokens = proof_inputs(config).ids.size();
  const uint64_t logits = tokens * static_cast<uint64_t>(config.vocab_size) * sizeof(float);
  // The largest matrix decoded and its merged values; the logits of the passes that are compared.
  return std::max(base_bytes, result_bytes) + (result_bytes > 0 ? 2 * largest_in_fp32(config) : 0) + 6 * logits;
}

uint64_t checkpoint_bytes(const fs::path& folder) {
  const Source source = Source::open(folder);
  uint64_t bytes = 0;
  for (const std::string& name : source.names()) bytes += source.info(name).bytes;
  return bytes;
}

}  // namespace asterism::checkpoint
