#include "asterism/train/checkpointer.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "asterism/checkpoint/sliced_safetensors.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/folder.h"
#include "asterism/core/log.h"
#include "asterism/core/shortened.h"
#include "asterism/parallel/slice_movement.h"
#include "asterism/train/checkpoint_size.h"
#include "asterism/train/run_ranks.h"
#include "asterism/train/shared_parameters.h"

namespace asterism::train {
namespace fs = std::filesystem;

namespace {

uint64_t model_bytes(const model::Model& model, const parallel::ShardedModel* shared) {
  if (shared != nullptr) return static_cast<uint64_t>(shared->whole_bytes());
  uint64_t sum = 0;
  for (const auto& [storage, bytes] : model::bytes_by_storage(model.config, model.weights)) {
    sum += static_cast<uint64_t>(bytes);
  }
  return sum;
}

/// The weights with what a snapshot holds in place of what training goes on to change.
model::Weights with_tensors_of(const checkpoint::TrainState& snapshot, const model::Model& model) {
  std::map<std::string, at::Tensor> values;
  for (const auto& named : snapshot.tensors) {
    if (named.name.starts_with(kParamPrefix)) {
      values[named.name.substr(std::string_view(kParamPrefix).size())] = named.tensor;
    }
  }
  return with_values(model, values);
}

double gigabytes(uint64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

/// The newest checkpoint before `step` that is intact, for a hint.
std::optional<int64_t> intact_before(const checkpoint::StateFolder& states, int64_t step) {
  std::vector<int64_t> steps = states.steps();
  for (auto older = steps.rbegin(); older != steps.rend(); ++older) {
    if (*older >= step) continue;
    try {
      checkpoint::read_train_state(states.path_of(*older));
      return *older;
    } catch (const InputError&) {  // damaged as well: look further back
    }
  }
  return std::nullopt;
}

}  // namespace

Checkpointer::Checkpointer(const LoopInputs& inputs, AdamW& optimizer)
    : inputs_(inputs),
      optimizer_(optimizer),
      states_(inputs.folder.checkpoints_folder()),
      record_{inputs.recipe_values, inputs.base} {}

std::optional<fs::path> Checkpointer::folder_to_resume() const {
  const std::string& mode = inputs_.recipe.checkpoint.resume;
  if (mode == "never") return std::nullopt;
  if (mode != "auto") return mode;
  const std::vector<int64_t> steps = states_.steps();
  return steps.empty() ? std::nullopt : std::optional(states_.path_of(steps.back()));
}

checkpoint::TrainState Checkpointer::read(const fs::path& folder) const {
  try {
    return checkpoint::read_train_state(folder);
  } catch (const InputError& error) {
    const std::vector<int64_t> steps = states_.steps();
    if (inputs_.recipe.checkpoint.resume != "auto") throw;
    const auto older = intact_before(states_, steps.back());
    const std::string way = older ? text("the newest intact one is of step ", *older,
                                         ": --set checkpoint.resume=", states_.path_of(*older).string(),
                                         " goes on from there, once; to begin again, ")
                                  : std::string("no older one is intact; to begin again, ");
    input_error("the newest checkpoint cannot be read: ", error.what(), "\n", way, "--set checkpoint.resume=never");
  }
}

std::optional<fs::path> Checkpointer::agreed_folder() const {
  const RunRanks ranks(inputs_.shared);
  std::optional<fs::path> own;
  if (ranks.is_first()) {
    states_.tidy();
    own = folder_to_resume();
  }
  const std::string path = ranks.of_first(own ? own->string() : std::string(), "checkpoint to resume from");
  return path.empty() ? std::nullopt : std::optional<fs::path>(path);
}

int64_t Checkpointer::resume() {
  const std::optional<fs::path> folder = agreed_folder();
  if (!folder) return 0;
  const RunRanks ranks(inputs_.shared);
  checkpoint::TrainState state;
  if (ranks.is_first()) state = read(*folder);
  // The others need not see the folder.
  if (ranks.size() > 1) {
    state.info = nlohmann::ordered_json::parse(ranks.of_first(state.info.dump(), "state of the checkpoint"));
  }
  try {
    return restore(state, *folder);
  } catch (const nlohmann::json::exception& error) {
    input_error((*folder / "state.json").string(), ": not what a run writes: ", shortened(error.what()),
                "; choose an older checkpoint, or begin again with --set checkpoint.resume=never");
  }
}

int64_t Checkpointer::restore(const checkpoint::TrainState& state, const fs::path& folder) {
  const int64_t step = inputs_.shared != nullptr
                           ? restore_shared(state, folder)
                           : restore_state(state, optimizer_, inputs_.buffers, record_, folder.string());
  if (step < 0 || step > inputs_.steps) {
    input_error(folder.string(), ": holds step ", step, ", beyond the ", inputs_.steps, " steps of the recipe");
  }
  first_row_ = data::position_from_json(state.info.at("data"), inputs_.train_data.identity(), folder.string());
  std::error_code absent;
  if (fs::equivalent(folder.parent_path(), inputs_.folder.checkpoints_folder(), absent)) {
    metrics_bytes_ = state.info.at("metrics").at("bytes").get<uint64_t>();
  }
  log_info("resuming after step ", step, " of ", inputs_.steps, " from ", folder.string());
  state_folder_ = folder;
  return step;
}

// Every rank reads what it keeps, where all see the folder; otherwise the first one reads and sends.
int64_t Checkpointer::restore_shared(const checkpoint::TrainState& state, const fs::path& folder) {
  dist::Comm& world = *inputs_.shared->comms().world;
  std::error_code hidden;
  const fs::path manifest = folder / "manifest.json";
  const std::string own = fs::is_regular_file(manifest, hidden) ? read_text(manifest) : std::string();
  const std::vector<std::string> seen = world.all_gather_text(own, "checkpoint to resume from: who sees it");
  const bool all_see = std::ranges::all_of(seen, [&](const std::string& text) { return text == seen.front(); });
  std::optional<checkpoint::SlicedFile> file;
  if (all_see || world.rank() == 0) file.emplace(folder / "state.safetensors");
  parallel::StreamedSlices streamed(world, file ? &*file : nullptr);
  if (!all_see) log_info(folder.string(), " is not there on every rank: rank 0 reads it and sends the parts");
  model::SliceReader& values = all_see ? static_cast<model::SliceReader&>(*file) : streamed;
  return restore_shared_state(state, optimizer_, inputs_.buffers, record_, folder.string(), *inputs_.shared, values);
}

void Checkpointer::prepare(int64_t done) {
  check_space(done);
  checkpoint::TrainState trial;
  trial.info = {{"step", done}};
  const auto& parameters = optimizer_.parameters();
  const auto smallest = std::ranges::min_element(parameters, {}, [](const Parameter& p) { return p.value.numel(); });
  if (smallest != parameters.end()) trial.tensors.push_back({"trial", smallest->value.detach(), {}});
  states_.probe(trial);
  states_.set_aside_after(done);  // last: whoever is refused before keeps what is there
}

void Checkpointer::check_space(int64_t done) const {
  const CheckpointSize size = checkpoint_size(inputs_.recipe, inputs_.model.config);
  const CheckpointSection& section = inputs_.recipe.checkpoint;
  const int64_t left = inputs_.steps - done;
  const int64_t saves = section.every > 0 ? (left + section.every - 1) / section.every : 1;
  const std::vector<int64_t> steps = states_.steps();
  const int64_t held = std::ranges::count_if(steps, [&](int64_t step) { return step <= done; });
  // A new checkpoint is complete before the oldest goes.
  const int64_t more = std::max<int64_t>(1, std::min(saves, section.keep + 1 - held));
  const uint64_t result = inputs_.recipe.lora ? 2 * size.adapter_bytes : model_bytes(inputs_.model, inputs_.shared);
  const uint64_t needed = static_cast<uint64_t>(more) * size.bytes() + result;
  const uint64_t free = available_bytes(inputs_.folder.root());
  if (free >= needed) return;
  run_error(inputs_.folder.root().string(), ": the run will write ", gigabytes(needed), " GB (", more,
            " checkpoints of ", gigabytes(size.bytes()), " GB and its result), but only ", gigabytes(free),
            " GB are free; free some space, choose another output, or lower checkpoint.keep (now ", section.keep, ")");
}

double Checkpointer::take(int64_t step, const data::StreamPosition& next_row) {
  const auto start = std::chrono::steady_clock::now();
  task_.wait();
  if (inputs_.shared != nullptr) {
    if (RunRanks(inputs_.shared).is_first()) staged_ = states_.stage(step);
    snapshot_ = {.info = write_shared_state(step, optimizer_, inputs_.buffers, record_, *inputs_.shared,
                                            staged_ ? staged_->file() : fs::path()),
                 .tensors = {}};
  } else {
    snapshot_ = capture_state(step, optimizer_, inputs_.buffers, record_);
  }
  state_folder_ = states_.path_of(step);
  snapshot_.info["random"] = {{"seed", inputs_.recipe.seed}, {"streams", "counter-based"}};
  snapshot_.info["data"] = data::position_to_json(next_row, inputs_.train_data.identity());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Checkpointer::write(uint64_t metrics_bytes) {
  snapshot_.info["metrics"] = {{"bytes", metrics_bytes}};
  const std::shared_ptr<checkpoint::StagedState> staged = std::move(staged_);
  task_.start([this, staged, snapshot = std::exchange(snapshot_, {})]() mutable {
    // The steps up to the checkpoint never run again: their lines must outlive a crash before it does.
    sync_path(inputs_.folder.metrics_file());
    save(snapshot, staged.get());
    snapshot = {};  // memory is free at once, not only when the next write begins
  });
}

void Checkpointer::save(const checkpoint::TrainState& snapshot, checkpoint::StagedState* staged) {
  const auto step = snapshot.info.at("step").get<int64_t>();
  const int64_t keep = inputs_.recipe.checkpoint.keep;
  model::Weights weights;
  std::unique_ptr<checkpoint::SlicedFile> values;
  if (inputs_.write_adapter && staged != nullptr) {
    weights = adapter_outlines(inputs_.model, *inputs_.shared, inputs_.recipe.lora->config.modules_to_save);
    values = std::make_unique<checkpoint::SlicedFile>(staged->file(), kParamPrefix, inputs_.base_values);
  } else if (inputs_.write_adapter) {
    weights = with_tensors_of(snapshot, inputs_.model);
  }
  const auto add_adapter = [&](const fs::path& staging) {
    inputs_.write_adapter(staging / "adapter", weights, values.get());
  };
  const auto extra = inputs_.write_adapter ? add_adapter : std::function<void(const fs::path&)>();
  if (staged != nullptr) {
    states_.save(step, *staged, snapshot.info, keep, extra);
  } else {
    states_.save(step, snapshot, keep, extra);
  }
  if (inputs_.write_adapter) inputs_.write_adapter(inputs_.folder.adapter_folder(), weights, values.get());
}

}  // namespace asterism::train
