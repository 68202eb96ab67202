#include "asterism/cli/session.h"

#include <filesystem>
#include <set>

#include "asterism/checkpoint/peft.h"
#include "asterism/cli/numbers.h"
#include "asterism/cli/recipe_keys.h"
#include "asterism/core/error.h"
#include "asterism/core/file.h"
#include "asterism/core/log.h"
#include "asterism/core/progress.h"
#include "asterism/data/chat_markup.h"
#include "asterism/data/fingerprint.h"
#include "asterism/data/source_summary.h"
#include "asterism/data/variant_detection.h"
#include "asterism/ops/matmul.h"

namespace asterism::cli {
namespace fs = std::filesystem;

namespace {

data::Overlong overlong(const std::string& name) {
  if (name == "drop") return data::Overlong::Drop;
  return name == "truncate" ? data::Overlong::Truncate : data::Overlong::Error;
}

data::FitOptions fit_options(const train::DataSection& section) {
  return {
      .sequence_length = section.sequence_length,
      .overlong = overlong(section.overlong),
      .without_targets = section.without_targets == "error" ? data::WithoutTargets::Error : data::WithoutTargets::Skip};
}

data::Thinking thinking(const std::string& name) {
  if (name == "chat") return data::Thinking::Chat;
  return name == "thinking" ? data::Thinking::Thinking : data::Thinking::Auto;
}

// A level that the variant does not have would make every row bad: that is no fault of the rows.
data::ReasoningEffort effort(const std::string& level, data::ChatVariant variant) {
  const auto number = parse_whole<int64_t>(level);
  data::ChatOptions options{.variant = variant};
  options.reasoning_effort = number ? data::ReasoningEffort{data::EffortLevel::Number, static_cast<int>(*number)}
                                    : data::reasoning_effort(level);
  try {
    data::effort_text(options);
  } catch (const data::ChatError& error) {
    input_error("data.reasoning_effort: ", error.explanation(), "; the encoding is ", data::variant_name(variant));
  }
  return options.reasoning_effort;
}

void report_origin(const char* what, const data::PreparedData& prepared) {
  if (!prepared.cache_note.empty()) {
    log_info(what, ": the index of an earlier start is not used: ", prepared.cache_note, "; made anew");
  }
  const size_t files = prepared.index->files().size();
  log_info(what, ": ", prepared.index->report().rows, " rows in ", files, files == 1 ? " file, " : " files, ",
           prepared.from_cache ? "known from an earlier start (index in the cache)" : "prepared");
}

void report_data(const char* what, const data::DataSet& set) {
  const data::PreparationReport& report = set.report();
  log_info(what, ": ", report.samples, " samples, ", report.tokens, " tokens, ", report.trained_tokens,
           " of them trained, in ", set.rows_per_epoch(0), " rows filled to ",
           static_cast<int>(100.0 * set.fill_ratio(0) + 0.5), " %");
  if (report.fit.without_targets > 0) {
    log_warning(what, ": left out ", report.fit.without_targets, " samples without a token to train");
  }
  if (report.fit.dropped + report.fit.truncated > 0) {
    log_warning(what, ": ", report.fit.dropped, " samples dropped and ", report.fit.truncated,
                " cut because they are longer than data.sequence_length; ", report.fit.trained_tokens_lost,
                " trained tokens lost");
  }
  if (report.bad_rows > 0) {
    log_warning(what, ": skipped ", report.bad_rows, " of ", report.rows, " rows:");
    for (const auto& [category, count] : report.bad_by_category) log_warning("  ", category, ": ", count);
    for (const std::string& message : report.first_bad) log_warning("  ", message);
  }
}

/// Changes with every build of the program: an encoder that was corrected makes other tokens of the same rows.
std::string program_fingerprint() {
  data::Fingerprint content;
  content.add(MappedFile::open("/proc/self/exe")->text());
  return content.text();
}

/// Keys of the section `data` that say nothing about what a row becomes. Any other key does, so that one that is added
/// later is not forgotten.
bool is_about_order(const std::string& path) {
  static const std::set<std::string> paths = {"data.train",   "data.eval",           "data.packing",
                                              "data.shuffle", "data.shuffle_buffer", "data.workers"};
  return paths.contains(path);
}

}  // namespace

checkpoint::ReadOptions read_options(train::Storage storage) {
  using checkpoint::Form;
  switch (storage) {
    case train::Storage::kFp32:
      return {.matrix_dtype = at::kFloat};
    case train::Storage::kBf16:
      return {.matrix_dtype = at::kBFloat16};
    case train::Storage::kFp8:
      return {.packed = true, .storage = {.experts = Form::fp8(), .dense = Form::fp8()}};
    case train::Storage::kFp4:
      return {.packed = true, .storage = {.experts = Form::fp4(), .dense = Form::fp8()}};
    default:
      return {.packed = true};
  }
}

void warn_of_rounding(const checkpoint::RecodingLoss& loss, train::Storage storage) {
  if (loss.changed == 0) return;
  const char* name = storage == train::Storage::kFp4 ? "fp4" : "fp8";
  log_warning("model.storage: ", name, " changed ", loss.changed, " of ", loss.values,
              " values of the checkpoint: ", loss.vanished, " became 0, the others by up to ", loss.largest_relative,
              " of their size; model.storage: auto keeps them as they are");
}

model::Model load_model(const std::string& folder, train::Storage storage, const std::string& adapter) {
  model::Model model;
  model.config = model::read_config(fs::path(folder) / "config.json");
  checkpoint::LoadedWeights loaded = checkpoint::read_weights(folder, model.config, read_options(storage));
  for (const std::string& note : loaded.notes) log_info(note);
  warn_of_rounding(loaded.rounded, storage);
  model.weights = std::move(loaded.weights);
  if (!adapter.empty()) checkpoint::load_adapter(adapter, model.config, model.weights);
  return model;
}

at::ScalarType compute_type(train::Compute compute) {
  if (compute == train::Compute::kBf16) return at::kBFloat16;
  if (compute == train::Compute::kFp32) return at::kFloat;
  return ops::has_native_bf16() ? at::kBFloat16 : at::kFloat;
}

std::shared_ptr<const data::Tokenizer> load_tokenizer(const std::string& path, const std::string& model_folder,
                                                      int64_t vocab_size) {
  const fs::path source = path.empty() ? fs::path(model_folder) : fs::path(path);
  if (path.empty() && !fs::exists(source / "tokenizer.json")) return nullptr;
  auto tokenizer = std::make_shared<const data::Tokenizer>(data::Tokenizer::load(source));
  if (tokenizer->vocab_size() > vocab_size) {
    input_error(source.string(), ": the tokenizer has ids up to ", tokenizer->vocab_size() - 1,
                ", the model's vocabulary has ", vocab_size,
                " entries. Use the tokenizer that belongs to the model (model.tokenizer)");
  }
  return tokenizer;
}

void copy_tokenizer(const std::string& path, const std::string& model_folder, const fs::path& target) {
  const fs::path source = path.empty() ? fs::path(model_folder) : fs::path(path);
  // A path may be the tokenizer's file itself, whatever its name.
  const fs::path folder = fs::is_directory(source) ? source : source.parent_path();
  const fs::path file = fs::is_directory(source) ? source / "tokenizer.json" : source;
  const std::pair<fs::path, const char*> copies[] = {{file, "tokenizer.json"},
                                                     {folder / "tokenizer_config.json", "tokenizer_config.json"}};
  for (const auto& [from, name] : copies) {
    std::error_code failure;
    if (!fs::exists(from)) continue;
    fs::copy_file(from, target / name, failure);
    if (failure) run_error((target / name).string(), ": cannot copy ", from.string(), ": ", failure.message());
  }
}

data::ChatVariant variant_named(const std::string& name, const fs::path& folder, const data::Tokenizer* tokenizer) {
  if (name != "auto") {
    const data::ChatVariant variant = data::chat_variant(name);
    if (variant == data::ChatVariant::V4_1 && tokenizer != nullptr && !tokenizer->token_id(data::kSystemHeader)) {
      log_warning("chat encoding v4.1: the tokenizer has no token ", data::kSystemHeader, ", which is then plain text");
    }
    return variant;
  }
  const data::VariantChoice choice = data::detect_variant(folder, tokenizer);
  log_info("chat encoding ", data::variant_name(choice.variant), ": ", choice.reason);
  return choice.variant;
}

data::RowOptions row_options(const train::DataSection& section, std::shared_ptr<const data::Tokenizer> tokenizer,
                             int64_t vocab_size, const fs::path& model_folder) {
  data::RowOptions options;
  options.chat.variant = variant_named(section.variant, model_folder, tokenizer.get());
  options.chat.reject_unframeable = section.reject_unframeable;
  options.chat.special_in_content = data::special_in_content(section.special_in_content);
  options.chat.drop_thinking = section.drop_thinking;
  options.chat.reasoning_effort = effort(section.reasoning_effort, options.chat.variant);
  options.loss.history = data::history(section.history);
  options.thinking = thinking(section.thinking);
  options.bad_rows = section.bad_rows == "skip" ? data::BadRows::Skip : data::BadRows::Error;
  options.vocab_size = vocab_size;
  if (tokenizer) options.tokenize = data::tokenize_with(std::move(tokenizer));
  return options;
}

data::IndexPlace index_place(const train::Recipe& recipe, const data::RowOptions& options,
                             const data::Tokenizer* tokenizer) {
  nlohmann::ordered_json settings;
  settings["program"] = program_fingerprint();
  settings["tokenizer"] = tokenizer == nullptr ? "" : tokenizer->fingerprint();
  settings["vocab_size"] = options.vocab_size;
  settings["variant"] = static_cast<int>(options.chat.variant);  // what `auto` stands for
  for (const RecipeKey& key : recipe_keys()) {
    if (key.section() == "data" && !is_about_order(key.path)) settings[key.path] = key.get(recipe).items;
  }
  return {fs::path(recipe.output) / ".cache", settings.dump()};
}

std::unique_ptr<data::DataSet> load_data(const std::vector<data::DataSource>& sources, const train::Recipe& recipe,
                                         const data::RowOptions& options, const char* what,
                                         const data::IndexPlace& place) {
  data::PreparationOptions preparation;
  preparation.rows = options;
  preparation.fit = fit_options(recipe.data);
  preparation.workers = recipe.data.workers;
  const std::vector<data::DataFile> files = data::list_files(sources);
  for (size_t number = 0; number < sources.size(); ++number) {
    std::vector<fs::path> paths;
    for (const data::DataFile& file : files) {
      if (file.source == static_cast<int64_t>(number)) paths.push_back(file.path);
    }
    log_info(what, ": ", data::describe_source(sources[number].path, paths));
  }
  Progress progress({.label = text("read ", what), .unit = "rows"});
  data::PreparedData prepared =
      data::prepare_files(files, preparation, place, [&](int64_t rows) { progress.update(rows); });
  report_origin(what, prepared);

  data::DataSetOptions set;
  for (const data::DataSource& source : sources) set.weights.push_back(source.weight);
  set.packing = recipe.data.packing;
  set.shuffle = recipe.data.shuffle;
  set.shuffle_buffer = recipe.data.shuffle_buffer;
  set.seed = recipe.seed;
  set.batch = recipe.train.batch;
  auto data = std::make_unique<data::DataSet>(std::move(prepared), options, preparation.fit, set);
  report_data(what, *data);
  return data;
}

std::vector<data::DataSource> plain_sources(const std::vector<std::string>& paths) {
  std::vector<data::DataSource> sources;
  for (const std::string& path : paths) sources.push_back({path, 1.0});
  return sources;
}

void write_rejected_rows(const std::vector<const data::DataSet*>& sets, const fs::path& target) {
  std::string lines;
  for (const data::DataSet* set : sets) {
    if (set != nullptr && !set->prepared().rejected_rows.empty()) lines += read_text(set->prepared().rejected_rows);
  }
  if (lines.empty()) {
    fs::remove(target);
    return;
  }
  write_text_atomically(target, lines);
  log_warning("the rejected rows are in ", target.string());
}

}  // namespace asterism::cli
