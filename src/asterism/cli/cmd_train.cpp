#include <iostream>
#include <map>
#include <optional>

#include "asterism/checkpoint/checkpoint_slices.h"
#include "asterism/checkpoint/fingerprint.h"
#include "asterism/checkpoint/hf_checkpoint.h"
#include "asterism/checkpoint/peft.h"
#include "asterism/checkpoint/sliced_safetensors.h"
#include "asterism/cli/command_line.h"
#include "asterism/cli/commands.h"
#include "asterism/cli/rank_files.h"
#include "asterism/cli/recipe_file.h"
#include "asterism/cli/recipe_values.h"
#include "asterism/cli/run_report.h"
#include "asterism/cli/run_signals.h"
#include "asterism/cli/run_world.h"
#include "asterism/cli/session.h"
#include "asterism/cli/shared_weights.h"
#include "asterism/core/content_hash.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"
#include "asterism/core/memory.h"
#include "asterism/parallel/slice_movement.h"
#include "asterism/train/checkpoint_size.h"
#include "asterism/train/loop.h"
#include "asterism/train/resume.h"
#include "asterism/train/run_ranks.h"
#include "asterism/train/shared_parameters.h"
#include "asterism/version.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

// Attaches fresh or stored LoRA pairs, or chooses the trained tensors of full fine-tuning.
std::vector<train::Parameter> prepare_parameters(train::Recipe& recipe, model::Model& model, SharedWeights* weights) {
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
  if (weights != nullptr) weights->hold(model, recipe.lora->from);
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

// A shared model is what the run started from with the tensors of its last checkpoint in their places.
void export_model(const train::Recipe& recipe, const train::RunFolder& folder, const model::Model& model,
                  const fs::path& shared_state) {
  // Written into the staging folder, so that weights and tokenizer appear together.
  AtomicFolder target(folder.model_folder(), /*replace=*/true);
  checkpoint::WriteOptions options;
  options.replace = true;
  if (shared_state.empty()) {
    checkpoint::write_checkpoint(target.staging(), model.config, model.weights, options);
  } else {
    checkpoint::CheckpointSlices base(recipe.model.path, model.config, read_options(train::Storage::kFp32));
    checkpoint::SlicedFile trained(shared_state, train::kParamPrefix, &base);
    checkpoint::write_checkpoint(target.staging(), model.config, trained, options);
  }
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
  if (!is_first) return summary.stopped ? kInterrupted : kDone;
  const WorkInProgress writing(run.world);
  const bool shared = run.inputs.shared != nullptr;
  const fs::path state = shared ? summary.state_folder / "state.safetensors" : fs::path();
  if (write_adapter && shared) {
    checkpoint::SlicedFile values(state, train::kParamPrefix, run.inputs.base_values);
    const auto outlines = train::adapter_outlines(run.model, *run.inputs.shared, recipe.lora->config.modules_to_save);
    run.inputs.write_adapter(folder.adapter_folder(), outlines, &values);
  } else if (write_adapter) {
    run.inputs.write_adapter(folder.adapter_folder(), run.model.weights, nullptr);
  }
  if (write_model) export_model(recipe, folder, run.model, state);
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

// What ranks agree on before any work is done. Where the checkpoint is on rank 0 alone, the others have stand-ins, and
// the recipe of this rank names them.
struct Start {
  nlohmann::ordered_json base;
  std::optional<parallel::MeshComms> comms;
  std::vector<RankFiles> files;
  bool streamed = false;  // rank 0 alone reads weights
};

void find_files(std::string& path, Start& start) {
  if (path.empty()) return;
  const RankFiles& found = start.files.emplace_back(find_rank_files(*start.comms->world, path));
  path = found.path.string();
}

Start begin_together(train::Recipe& recipe, const std::shared_ptr<dist::World>& world, const parallel::Mesh& mesh) {
  Start start;
  start.comms = make_comms(world, mesh);
  const WorkInProgress looking(*world);
  const std::string model = recipe.model.path;
  find_files(recipe.model.path, start);
  start.streamed = !start.files.back().everywhere;
  find_files(recipe.model.tokenizer, start);
  if (recipe.lora) {
    find_files(recipe.lora->from, start);
    start.streamed = start.streamed || !start.files.back().everywhere;
  }
  // The values of a stand-in tell nothing.
  const bool own = start.files.front().scratch == nullptr;
  if (own) start.base = base_record(recipe);
  const std::string first = start.comms->world->all_gather_text(own ? start.base.dump() : "", "checkpoint").front();
  if (!own) start.base = nlohmann::ordered_json::parse(first);
  world->compare({{"checkpoint", start.base.dump()}});
  if (start.streamed) log_info(model, " is not there on every rank: rank 0 reads the weights and sends each its part");
  return start;
}

// Leaves this rank its part of the model; `parameters` become its pieces.
std::shared_ptr<parallel::ShardedModel> share_model(const train::Recipe& recipe, model::Model& model,
                                                    std::vector<train::Parameter>& parameters, SharedWeights& weights,
                                                    const Start& start) {
  const bool strict = recipe.train.deterministic == train::Determinism::kStrict;
  parallel::StreamedSlices streamed(*start.comms->world, &weights);
  model::SliceReader& values = start.streamed ? static_cast<model::SliceReader&>(streamed) : weights;
  train::SharedParameters own = train::share_parameters(model, std::move(parameters), *start.comms, strict, &values);
  parameters = own.parameters;
  weights.drop_trained();
  warn_of_rounding(weights.rounded(*start.comms), recipe.model.storage);
  return own.model;
}

// A run between reading its recipe and its end, on one rank.
int train_on_rank(const TrainArgs& args, train::Recipe& recipe, const std::shared_ptr<dist::World>& world,
                  RunSignals& signals) {
  const bool is_first = world->rank() == 0;
  world->compare({{"version", kVersion}, {"recipe", recipe_to_yaml(recipe)}});
  const parallel::Mesh mesh =
      mesh_of(recipe, args.dry_run && args.ranks > 0 ? static_cast<int>(args.ranks) : world->size());
  Start start;
  if (world->size() > 1) start = begin_together(recipe, world, mesh);
  const bool shares = shares_model(recipe, mesh) && !args.dry_run;
  if (shares && !start.comms) start.comms = make_comms(world, mesh);
  std::optional<WorkInProgress> preparing(std::in_place, *world);
  std::unique_ptr<SharedWeights> weights;
  if (shares) weights = std::make_unique<SharedWeights>(recipe);
  model::Model model = shares ? weights->outlines() : load_model(recipe.model.path, recipe.model.storage);
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
  auto parameters = prepare_parameters(recipe, model, weights.get());
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
  std::vector<train::Parameter> buffers = recipe.lora ? std::vector<train::Parameter>() : train::full_buffers(model);
  if (shares && !is_first) buffers.clear();
  if (shares) weights->load(buffers);
  const auto shared = shares ? share_model(recipe, model, parameters, *weights, start) : nullptr;
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
  inputs.base_values = weights.get();
  inputs.recipe_values = recipe_values(recipe);
  inputs.base = start.base.is_null() ? base_record(recipe) : start.base;
  inputs.stop_requested = [&] { return signals.stop_requested(); };
  inputs.save_requested = [&] { return signals.take_save_request(); };
  // Only now: a recipe that does not fit the checkpoint found is refused and must not replace the one that made it.
  inputs.on_start = [&] {
    folder.write_recipe(recipe_to_yaml(recipe));
    write_rejected_rows({train_data.get(), eval_data.get()}, folder.rejected_rows_file());
  };
  if (recipe.lora) {
    inputs.write_adapter = [&](const fs::path& target, const model::Weights& weights, model::SliceReader* values) {
      checkpoint::write_adapter(target, model.config, weights, recipe.lora->config, recipe.model.path, /*replace=*/true,
                                checkpoint::AdapterLayout::kPeft, values);
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
