#include "asterism/cli/recipe_check.h"

#include "asterism/cli/recipe_keys.h"
#include "asterism/core/error.h"

namespace asterism::cli {

namespace {

class Checker {
 public:
  Checker(const train::Recipe& recipe, const std::string& origin, const OriginOf& origin_of)
      : recipe_(recipe), origin_(origin), origin_of_(origin_of) {}

  std::vector<std::string> run() {
    check_required();
    check_length();
    check_storage();
    check_lora();
    check_evaluation();
    return std::move(problems_);
  }

 private:
  bool is_set(const std::string& path) const { return !origin_of_(path).empty(); }

  /// A problem at the first of `paths` that was set.
  template <typename... Parts>
  void add(const std::vector<std::string>& paths, const Parts&... parts) {
    std::string place = origin_;
    for (auto path = paths.rbegin(); path != paths.rend(); ++path) {
      if (is_set(*path)) place = origin_of_(*path);
    }
    problems_.push_back(text(place, ": ", parts...));
  }

  void check_required() {
    for (const RecipeKey& key : recipe_keys()) {
      if (key.required && !is_set(key.path)) add({}, key.path, " is missing; expected ", key.expected);
    }
  }

  void check_length() {
    const train::TrainSection& train = recipe_.train;
    const bool steps = is_set("train.steps"), epochs = is_set("train.epochs");
    if (steps && epochs) {
      add({"train.steps"}, "both train.steps and train.epochs (", origin_of_("train.epochs"),
          ") are set; a run has one length, remove one");
    }
    if (!steps && !epochs) add({}, "neither train.steps nor train.epochs is set; one of them says how long to train");
    if (train.micro_batch > train.batch) {
      add({"train.micro_batch", "train.batch"}, "train.micro_batch is ", train.micro_batch, ", more than train.batch (",
          train.batch, "); at most a whole batch is computed at once");
    }
    if (steps && recipe_.schedule.warmup_steps > train.steps) {
      add({"schedule.warmup_steps", "train.steps"}, "schedule.warmup_steps is ", recipe_.schedule.warmup_steps,
          ", more than train.steps (", train.steps, "); the full learning rate would never be reached");
    }
  }

  void check_storage() {
    const train::Storage storage = recipe_.model.storage;
    if (recipe_.lora || (storage != train::Storage::kFp8 && storage != train::Storage::kFp4)) return;
    const char* name = storage == train::Storage::kFp8 ? "fp8" : "fp4";
    add({"model.storage"}, "model.storage: ", name,
        " is for weights that are not trained, and without the section lora ", "all are: they would be rounded to ",
        name, " before they become fp32 masters; use auto, or add a section lora");
  }

  void check_lora() {
    if (!recipe_.lora) return;
    for (const std::string& path : keys_of_adapter()) {
      if (is_set("lora.from") && is_set(path)) {
        add({path}, path, " cannot be set together with lora.from (", origin_of_("lora.from"),
            "): it comes from the adapter; remove it");
      }
    }
    if (recipe_.model.indexer == train::IndexerMode::kKl) {
      add({"model.indexer"},
          "model.indexer: kl trains the indexer's own weights, which an adapter cannot hold; use "
          "frozen, or remove the section lora");
    }
  }

  void check_evaluation() {
    if (recipe_.eval_every > 0 && recipe_.data.eval.empty()) {
      add({"eval.every"}, "eval.every is ", recipe_.eval_every, " but data.eval names no data to evaluate on");
    }
  }

  const train::Recipe& recipe_;
  const std::string& origin_;
  const OriginOf& origin_of_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> recipe_contradictions(const train::Recipe& recipe, const std::string& origin,
                                               const OriginOf& origin_of) {
  return Checker(recipe, origin, origin_of).run();
}

}  // namespace asterism::cli
