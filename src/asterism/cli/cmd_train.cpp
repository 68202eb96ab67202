#include <iostream>
#include <map>
#include <optional>

#include "asterism/checkpoint/fingerprint.h"
#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/recipe_file.h"
#include "asterism/cli/recipe_values.h"
#include "asterism/cli/run_report.h"
#include "asterism/cli/run_signals.h"
#include "asterism/cli/run_world.h"
#include "asterism/cli/session.h"
#include "asterism/core/content_hash.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"
#include "asterism/core/memory.h"
#include "asterism/train/checkpoint_size.h"
#include "asterism/train/loop.h"
#include "asterism/train/run_ranks.h"
#include "asterism/train/shared_parameters.h"
#include "asterism/version.h"

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

void export_model(const train::Recipe& recipe, const train::RunFolder& folder, const model::Config& config,
                  const model::Weights& weights) {
  // Written into the staging folder, so that weights and tokenizer appear together.
  AtomicFolder target(folder.model_folder(), /*replace=*/true);
  checkpoint::WriteOptions options;
  options.replace = true;
  checkpoint::write_checkpoint(target.staging(), config, weights, options);
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

model::Weights trained_model(const train::Recipe& recipe, const std::map<std::string, at::Tensor>& values) {
  return train::with_values(load_model(recipe.model.path, train::Storage::kFp32), values);
}

// A run whose loop has ended.
struct EndedRun {
  const train::Recipe& recipe;
  const train::RunFolder& folder;
  const model::Model& model;
  const RunFacts& facts;
  const train::LoopInputs& inputs;
  const train::LoopSummary& summary;
  dist::World& world;
};

// Writes the result and the report. All ranks call it.
int finish_run(const EndedRun& run) {
  const train::Recipe& recipe = run.recipe;
  const train::RunFolder& folder = run.folder;
  const train::LoopSummary& summary = run.summary;
  const bool is_first = run.world.rank() == 0;
  const bool nothing_left = summary.first_step == summary.last_step;
  // Only the first rank may look: it is about to write what it looks for.
  const bool reported = is_first && is_reported(folder, run.inputs.steps);
  if (nothing_left && train::RunRanks(run.inputs.shared).any({.stop = reported}).stop) {
    log_info("nothing to do: all ", run.inputs.steps, " steps are done; for more, raise train.steps or train.epochs");
    return kDone;
  }
  const bool write_adapter = nothing_left && recipe.lora;  // a crash came between
  const bool write_model = !recipe.lora && !summary.stopped;
  model::Weights weights = run.model.weights;
  if (run.inputs.shared != nullptr && (write_adapter || write_model)) {
    // A full model is what the run started from with the trained tensors in their places.
    const auto values = train::whole_values(*run.inputs.shared);
    if (is_first) weights = write_adapter ? train::with_values(run.model, values) : trained_model(recipe, values);
  }
  if (!is_first) return summary.stopped ? kInterrupted : kDone;
  const WorkInProgress writing(run.world);
  if (write_adapter) run.inputs.write_adapter(folder.adapter_folder(), weights);
  if (write_model) export_model(recipe, folder, run.model.config, weights);
  folder.write_report(make_run_report(recipe, run.facts, run.inputs, summary));
  for (const std::string& line : describe_run(recipe, folder, summary)) log_info(line);
  return summary.stopped ? kInterrupted : kDone;
}

// The command of one rank: what this process was asked, without --ranks.
std::vector<std::string> arguments_of_ranks(const TrainArgs& args) {
  std::vector<std::string> arguments = {"asterism", "train", args.recipe};
  for (const std::string& override : args.overrides) {
    arguments.insert(arguments.end(), {"--set", override});
  }
  if (process_log().quiet()) arguments.emplace_back("--quiet");
  return arguments;
}

// A run between reading its recipe and its end, on one rank.
int train_on_rank(const TrainArgs& args, train::Recipe& recipe, const std::shared_ptr<dist::World>& world,
                  RunSignals& signals) {
  const bool is_first = world->rank() == 0;
  nlohmann::ordered_json base;
  if (world->size() > 1) {
    // What must be the same on every rank before any work is done.
    base = base_record(recipe);
    world->compare({{"version", kVersion}, {"recipe", recipe_to_yaml(recipe)}, {"checkpoint", base.dump()}});
  }
  const parallel::Mesh mesh =
      mesh_of(recipe, args.dry_run && args.ranks > 0 ? static_cast<int>(args.ranks) : world->size());
  std::optional<WorkInProgress> preparing(std::in_place, *world);
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
  auto parameters = prepare_parameters(recipe, model);
  say_what_is_frozen(recipe, model);
  log_info(describe_weights(model));
  if (mesh.ranks > 1) log_info(parallel::describe_mesh(mesh, static_cast<int>(model.config.num_experts)));
  const int64_t steps = count_steps(recipe, *train_data);
  if (recipe.schedule.warmup_steps > steps) {
    input_error("schedule.warmup_steps: ", recipe.schedule.warmup_steps, " exceeds the ", steps, " steps of the run");
  }
  if (args.dry_run) {
    if (is_first) std::cout << recipe_to_yaml(recipe);
    say_what_a_checkpoint_takes(recipe, model.config);
    log_info("dry run: the recipe, the model and the data are fine; ", steps, " steps of ", recipe.train.batch,
             " rows");
    return kDone;
  }

  const RunFacts facts = run_facts(model, parameters, mesh);
  const std::vector<train::Parameter> buffers =
      recipe.lora ? std::vector<train::Parameter>() : train::full_buffers(model);
  std::shared_ptr<parallel::ShardedModel> shared;
  if (shares_model(recipe, mesh)) {
    const bool strict = recipe.train.deterministic == train::Determinism::kStrict;
    train::SharedParameters own =
        train::share_parameters(model, std::move(parameters), make_comms(world, mesh), strict);
    shared = own.model;
    parameters = own.parameters;
  }
  preparing.reset();
  const train::RunFolder folder(fs::path(recipe.output) / recipe.name);
  std::optional<FolderLock> lock;
  if (is_first) {
    folder.create();
    lock.emplace(folder.root());
    folder.tidy();
    process_log().open_file(folder.log_file());
  }
  signals.catch_stops();
  train::LoopInputs inputs{recipe,          model,  parameters, *train_data,
                           eval_data.get(), folder, steps,      compute_type(recipe.model.compute)};
  inputs.buffers = buffers;
  inputs.shared = shared.get();
  inputs.recipe_values = recipe_values(recipe);
  inputs.base = base.is_null() ? base_record(recipe) : base;
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
  return finish_run({recipe, folder, model, facts, inputs, summary, *world});
}

}  // namespace

int run_train(const TrainArgs& args) {
  RunSignals signals;
  train::Recipe recipe = read_recipe(args.recipe, args.overrides);
  if (!args.dry_run) {
    // What is wrong with the recipe is said once, before any rank is started.
    if (args.ranks > 1) mesh_of(recipe, static_cast<int>(args.ranks));
    const auto code = launch_ranks(args.ranks, arguments_of_ranks(args));
    if (code) return *code;
  }
  const std::shared_ptr<dist::World> world = join_world();
  if (world->rank() == 0) {
    process_log().hold_lines();
  } else {
    process_log().set_quiet(true);  // what all would say, the first one says
  }
  int code = kDone;
  world->run([&] { code = train_on_rank(args, recipe, world, signals); });
  world->leave();
  process_log().close_file();
  return code;
}

}  // namespace asterism::cli
