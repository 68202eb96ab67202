#include "asterism/train/resume_rules.h"

#include <algorithm>
#include <set>

#include "asterism/core/error.h"

namespace asterism::train {

namespace {

using Json = nlohmann::ordered_json;

constexpr bool kFixed = false, kFree = true;
constexpr std::string_view kNamesStreams = "names every random stream";
constexpr std::string_view kTrainedSet = "decides which tensors are trained";
constexpr std::string_view kWhichRows = "decides which rows a step sees";
constexpr std::string_view kWhatIsInRows = "decides what a row holds";
constexpr std::string_view kAdapterShape = "is part of the adapter";
constexpr std::string_view kNextSteps = "counts from the next step on";
constexpr std::string_view kByContent = "the files may have moved; their content is compared";
constexpr std::string_view kRounding = "changes rounding only";
constexpr std::string_view kSpeed = "changes nothing but memory and speed";
constexpr std::string_view kOutput = "changes what is written, not what is trained";

Json value_of(const Json& recipe, const std::string& key) {
  return recipe.contains(key) ? recipe.at(key) : Json();
}

}  // namespace

const std::vector<ResumeRule>& resume_rules() {
  static const std::vector<ResumeRule> rules = {
      {"name", kFree, kOutput},
      {"output", kFree, kOutput},
      {"seed", kFixed, kNamesStreams},
      {"model.path", kFree, kByContent},
      {"model.tokenizer", kFree, kByContent},
      {"model.storage", kFree, kRounding},
      {"model.compute", kFree, kRounding},
      {"model.indexer", kFixed, kTrainedSet},
      {"model.mtp_weight", kFixed, kTrainedSet},
      {"data.train", kFree, kByContent},
      {"data.eval", kFree, kOutput},
      {"data.variant", kFixed, kWhatIsInRows},
      {"data.thinking", kFixed, kWhatIsInRows},
      {"data.reasoning_effort", kFixed, kWhatIsInRows},
      {"data.drop_thinking", kFixed, kWhatIsInRows},
      {"data.history", kFixed, kWhatIsInRows},
      {"data.special_in_content", kFixed, kWhatIsInRows},
      {"data.reject_unframeable", kFixed, kWhichRows},
      {"data.sequence_length", kFixed, kWhatIsInRows},
      {"data.packing", kFixed, kWhatIsInRows},
      {"data.overlong", kFixed, kWhichRows},
      {"data.bad_rows", kFree, "applies to rows that are read from now on"},
      {"data.without_targets", kFixed, kWhichRows},
      {"data.shuffle", kFixed, kWhichRows},
      {"data.shuffle_buffer", kFixed, kWhichRows},
      {"data.workers", kFree, kSpeed},
      {"lora.from", kFree, "its weights are those of the checkpoint by now"},
      {"lora.rank", kFixed, kAdapterShape},
      {"lora.alpha", kFixed, kAdapterShape},
      {"lora.rslora", kFixed, kAdapterShape},
      {"lora.dropout", kFixed, kAdapterShape},
      {"lora.targets", kFixed, kTrainedSet},
      {"lora.modules_to_save", kFixed, kTrainedSet},
      {"parallel.expert", kFree, kRounding},
      {"parallel.shard", kFree, kRounding},
      {"parallel.replicate", kFree, kRounding},
      {"train.steps", kFree, "a run may become longer, or shorter than planned; the schedule follows"},
      {"train.epochs", kFree, "a run may become longer, or shorter than planned; the schedule follows"},
      {"train.batch", kFixed, kWhichRows},
      {"train.micro_batch", kFree, kRounding},
      {"train.recompute", kFree, kSpeed},
      {"train.deterministic", kFree, kRounding},
      {"train.balance_loss", kFree, kNextSteps},
      {"optimizer.name", kFixed, "decides what the optimizer state holds"},
      {"optimizer.lr", kFree, kNextSteps},
      {"optimizer.betas", kFree, kNextSteps},
      {"optimizer.eps", kFree, kNextSteps},
      {"optimizer.weight_decay", kFree, kNextSteps},
      {"optimizer.clip_norm", kFree, kNextSteps},
      {"schedule.warmup_steps", kFree, kNextSteps},
      {"schedule.decay", kFree, kNextSteps},
      {"schedule.min_ratio", kFree, kNextSteps},
      {"checkpoint.every", kFree, kOutput},
      {"checkpoint.keep", kFree, kOutput},
      {"checkpoint.resume", kFree, kOutput},
      {"eval.every", kFree, kOutput},
      {"log.every", kFree, kOutput},
      {"log.tensorboard", kFree, kOutput},
  };
  return rules;
}

std::vector<std::string> compare_recipes(const Json& saved, const Json& wanted, const std::string& origin) {
  std::vector<std::string> keys;
  for (const ResumeRule& rule : resume_rules()) keys.emplace_back(rule.key);
  for (const Json* recipe : {&saved, &wanted}) {
    for (const auto& [key, value] : recipe->items()) {
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  std::vector<std::string> allowed;
  std::string refused;
  for (const std::string& key : keys) {
    const Json before = value_of(saved, key), now = value_of(wanted, key);
    if (before == now) continue;
    const auto rule = std::ranges::find(resume_rules(), key, &ResumeRule::key);
    const std::string change = text(key, ": ", before.dump(), " in the checkpoint, ", now.dump(), " in the recipe");
    if (rule != resume_rules().end() && rule->may_change) {
      allowed.push_back(change);
    } else {
      refused += "\n  " + change + (rule == resume_rules().end() ? "" : text(" (", rule->why, ")"));
    }
  }
  if (!refused.empty()) {
    input_error(origin, ": was written by another run:", refused,
                "\nRestore the old values, or choose another name (or checkpoint.resume: never) for a new run");
  }
  return allowed;
}

}  // namespace asterism::train
