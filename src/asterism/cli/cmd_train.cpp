#include <iostream>

#include "asterism/checkpoint/fingerprint.h"
#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/recipe_file.h"
#include "asterism/cli/recipe_values.h"
#include "asterism/cli/run_report.h"
#include "asterism/cli/run_signals.h"
#include "asterism/cli/session.h"
#include "asterism/core/content_hash.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"
#include "asterism/core/memory.h"
#include "asterism/train/checkpoint_size.h"
#include "asterism/train/loop.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

// Attaches fresh or stored LoRA pairs, or chooses the trained tensors of full fine-tuning.
std::vector<train::Parameter> prepare_parameters(train::Recipe& recipe, model::Model& model) {
  const train::TrainedParts parts{recipe.model.indexer == train::IndexerMode::kKl, recipe.model.mtp_weight > 0.0};
  if (!recipe.lora) {
    const auto parameters = train::full_parameters(model, parts);
    log_info("full fine-tuning: ", parameters.size(), " tensors, ", train::count_elements(parameters), " numbers");
    return parameters;
  }
  std::vector<std::string> paths;
  if (!recipe.lora->from.empty()) {
    const auto stored = checkpoint::load_adapter(recipe.lora->from, model.config, model.weights);
    const double dropout = recipe.lora->config.dropout;
    recipe.lora->config = stored.lora;
    recipe.lora->config.dropout = dropout;
    model::set_lora_dropout(model.config, model.weights, dropout);
    paths = stored.paths;
  } else {
    paths = model::attach_lora(model.config, model.weights, recipe.lora->config, recipe.seed);
  }
  const auto parameters = train::lora_parameters(model, recipe.lora->config.modules_to_save, parts);
  log_info("LoRA on ", paths.size(), " matrices, ", train::count_elements(parameters), " trained numbers:");
  for (const std::string& line : summarise_paths(paths)) log_info("  ", line);
  return parameters;
}

void say_what_is_frozen(const train::Recipe& recipe, const model::Model& model) {
  bool sparse = false;
  for (const auto& layer : model.config.layers) sparse = sparse || layer.attention == model::AttentionKind::kSparse;
  if (!sparse) return;
  log_info("lightning indexer: ", recipe.model.indexer == train::IndexerMode::kKl
                                      ? "trained by its own KL loss (model.indexer: kl)"
                                      : "frozen; its choice carries no gradient (model.indexer: frozen)");
}

int64_t count_steps(const train::Recipe& recipe, const data::DataSet& data) {
  if (recipe.train.steps > 0) return recipe.train.steps;
  const double whole = std::floor(recipe.train.epochs);
  const auto epochs = static_cast<int64_t>(whole);
  if (static_cast<double>(epochs) == recipe.train.epochs) return data.steps_of_epochs(epochs);
  const int64_t before = data.steps_of_epochs(epochs), after = data.steps_of_epochs(epochs + 1);
  return before +
         std::max<int64_t>(1, std::llround((recipe.train.epochs - whole) * static_cast<double>(after - before)));
}

void export_model(const train::Recipe& recipe, const train::RunFolder& folder, const model::Model& model) {
  // Written into the staging folder, so that weights and tokenizer appear together.
  AtomicFolder target(folder.model_folder(), /*replace=*/true);
  checkpoint::WriteOptions options;
  options.replace = true;
  checkpoint::write_checkpoint(target.staging(), model.config, model.weights, options);
  copy_tokenizer(recipe.model.tokenizer, recipe.model.path, target.staging());
  target.publish();
  log_info("model written to ", folder.model_folder().string());
}

// What tells the files that a run starts from, and that its checkpoints do not copy, from others.
nlohmann::ordered_json base_record(const train::Recipe& recipe) {
  nlohmann::ordered_json record = checkpoint::base_fingerprint(recipe.model.path);
  const fs::path source = recipe.model.tokenizer.empty() ? recipe.model.path : recipe.model.tokenizer;
  const fs::path file = fs::is_directory(source) ? source / "tokenizer.json" : source;
  if (fs::exists(file)) record["tokenizer"] = content_hash_of_file(file);
  return record;
}

void say_what_a_checkpoint_takes(const train::Recipe& recipe, const model::Config& config) {
  const train::CheckpointSize size = train::checkpoint_size(recipe, config);
  log_info("a checkpoint takes ", size.bytes(), " bytes: ", size.state_bytes, " of weights and optimizer state for ",
           size.trained_numbers, " trained numbers",
           recipe.lora ? text(", ", size.adapter_bytes, " of the adapter") : std::string(), "; checkpoint.keep is ",
           recipe.checkpoint.keep);
}

// The report is written last: with it, nothing of a run to this step is missing.
bool is_reported(const train::RunFolder& folder, int64_t step) {
  if (!fs::exists(folder.report_file())) return false;
  const auto report = nlohmann::json::parse(read_text(folder.report_file()), nullptr, /*allow_exceptions=*/false);
  return report.is_object() && report.value("last_step", nlohmann::json()) == step;
}

}  // namespace

int run_train(const TrainArgs& args) {
  RunSignals signals;
  train::Recipe recipe = read_recipe(args.recipe, args.overrides);
  process_log().hold_lines();
  model::Model model = load_model(recipe.model.path, recipe.model.storage);
  if (recipe.model.mtp_weight > 0.0 && model.config.num_mtp_layers == 0) {
    input_error("model.mtp_weight: the checkpoint ", recipe.model.path, " has no MTP layer; set it to 0");
  }
  const auto tokenizer = load_tokenizer(recipe.model.tokenizer, recipe.model.path, model.config.vocab_size);
  const data::RowOptions rows = row_options(recipe.data, tokenizer, model.config.vocab_size, recipe.model.path);
  // A dry run leaves nothing behind.
  const data::IndexPlace place = args.dry_run ? data::IndexPlace() : index_place(recipe, rows, tokenizer.get());
  const auto train_data = load_data(recipe.data.train, recipe, rows, "train", place);
  const auto eval_data =
      recipe.data.eval.empty() ? nullptr : load_data(plain_sources(recipe.data.eval), recipe, rows, "eval", place);
  const auto parameters = prepare_parameters(recipe, model);
  say_what_is_frozen(recipe, model);
  log_info(describe_weights(model));
  const int64_t steps = count_steps(recipe, *train_data);
  if (recipe.schedule.warmup_steps > steps) {
    input_error("schedule.warmup_steps: ", recipe.schedule.warmup_steps, " exceeds the ", steps, " steps of the run");
  }
  if (args.dry_run) {
    std::cout << recipe_to_yaml(recipe);
    say_what_a_checkpoint_takes(recipe, model.config);
    log_info("dry run: the recipe, the model and the data are fine; ", steps, " steps of ", recipe.train.batch,
             " rows");
    process_log().close_file();
    return kDone;
  }

  const train::RunFolder folder(fs::path(recipe.output) / recipe.name);
  folder.create();
  const FolderLock lock(folder.root());
  folder.tidy();
  process_log().open_file(folder.log_file());
  signals.catch_stops();
  train::LoopInputs inputs{recipe,          model,  parameters, *train_data,
                           eval_data.get(), folder, steps,      compute_type(recipe.model.compute)};
  if (!recipe.lora) inputs.buffers = train::full_buffers(model);
  inputs.recipe_values = recipe_values(recipe);
  inputs.base = base_record(recipe);
  inputs.stop_requested = [&] { return signals.stop_requested(); };
  inputs.save_requested = [&] { return signals.take_save_request(); };
  // Only now: a recipe that does not fit the checkpoint found is refused and must not replace the one that made it.
  inputs.on_start = [&] {
    folder.write_recipe(recipe_to_yaml(recipe));
    write_rejected_rows({train_data.get(), eval_data.get()}, folder.rejected_rows_file());
  };
  if (recipe.lora) {
    inputs.write_adapter = [&](const fs::path& target, const model::Weights& weights) {
      checkpoint::write_adapter(target, model.config, weights, recipe.lora->config, recipe.model.path);
    };
  }
  const train::LoopSummary summary = train::run_loop(inputs);
  const bool nothing_left = summary.first_step == summary.last_step;
  if (nothing_left && is_reported(folder, steps)) {
    log_info("nothing to do: all ", steps, " steps are done; for more, raise train.steps or train.epochs");
    process_log().close_file();
    return kDone;
  }
  if (nothing_left && recipe.lora)
    inputs.write_adapter(folder.adapter_folder(), model.weights);  // a crash came between
  if (!recipe.lora && !summary.stopped) export_model(recipe, folder, model);
  folder.write_report(make_run_report(recipe, model, parameters, inputs, summary));
  for (const std::string& line : describe_run(recipe, folder, summary)) log_info(line);
  process_log().close_file();
  return summary.stopped ? kInterrupted : kDone;
}

}  // namespace asterism::cli
